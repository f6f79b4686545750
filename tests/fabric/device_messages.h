#pragma once

#include <chrono>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <vector>

#include "fabric/harness.h"
#include "kernel/device_block.h"
#include "starling/base/error.h"
#include "starling/fabric/device_messages.h"
#include "starling/kernel/device.h"

// Helpers of the tests of messages in device memory.

namespace starling::fabric {

using namespace std::chrono_literals;
using kernel::device;
using kernel::DeviceBlock;
using Floats = std::vector<float>;

// Returns the next message, or nothing once the sender is dead.
inline std::optional<Arrival> next_from(Fabric& fabric, Rank source) {
  const Deadline deadline = std::chrono::steady_clock::now() + 30s;
  for (;;) {
    const std::uint32_t wake_count = fabric.wake_count();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return arrival;
    if (!was_alive) return std::nullopt;
    demand(std::chrono::steady_clock::now() < deadline, fmt::format("nothing from rank {}", source));
    fabric.sleep(wake_count, {&source, 1}, deadline);
  }
}

inline void post_copy(Fabric& fabric, ConstBuffer values, std::vector<Rank> others, std::uint64_t sequence) {
  const Outgoing message = reserve(fabric, values.bytes(), values.memory);
  kernel::arithmetic_in(values.memory).copy(message.buffer(values.dtype, values.count), values);
  MessageHeader header;
  header.sequence = sequence;
  header.count = values.count;
  for (const Rank to : others)
    if (to != fabric.rank()) fabric.post(message, header, to);
}

inline void post_floats(Fabric& fabric, const Floats& values, Rank to, std::uint64_t sequence,
                        MemoryKind memory) {
  if (memory == MemoryKind::host)
    post_copy(fabric, {DType::float32, values.data(), values.size()}, {to}, sequence);
  else
    post_copy(fabric, DeviceBlock<float>(values).buffer(), {to}, sequence);
}

// Enqueues a copy of the message and returns without waiting. The copy is zero if the sender died before the
// message was complete.
inline DeviceBlock<float> read_on_device(const Arrival& arrival) {
  const std::size_t count = arrival.header().count;
  DeviceBlock<float> result(count);
  const Term terms[] = {{ConstBuffer(result.buffer()), 0}, arrival.term(DType::float32, count, 0, 1)};
  device().arithmetic().combine(result.buffer(), terms);
  return result;
}

inline Floats floats_in(const Arrival& arrival) {
  demand(arrival.size() == arrival.header().count * sizeof(float), "size of a message");
  if (arrival.memory() == MemoryKind::cuda) return read_on_device(arrival).values();
  const auto* first = reinterpret_cast<const float*>(arrival.bytes().data());
  return {first, first + arrival.header().count};
}

inline Floats numbered(Rank rank, std::uint64_t k, std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(rank) * 1000 + static_cast<float>(k) + static_cast<float>(i % 977) / 1024;
  return values;
}

// A flag in this process that holds back a stream until the host opens it.
class Gate {
 public:
  Gate() { device().register_flags(&flag_, sizeof(flag_)); }
  ~Gate() {
    open();
    device().synchronize();
    device().unregister_flags(&flag_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Work that is enqueued after this call waits until open().
  void close() { device().wait(flag_, 1); }
  void open() { flag_ = 1; }

 private:
  kernel::Flag flag_ = 0;
};

}  // namespace starling::fabric

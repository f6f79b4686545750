#include "starling/record/state_snapshot.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "starling/kernel/copy.h"
#include "starling/kernel/device.h"
#include "starling/record/checkpoint_layout.h"

namespace starling::record {

void StateSnapshot::reserve(std::size_t bytes, bool pinned) {
  if (bytes_ >= bytes && (pinned_ || !pinned)) return;
  memory_.reset();  // free first: never hold both
  bytes_ = 0;
  if (pinned) {
    memory_ = kernel::device().allocate_pinned(bytes);
  } else {
    const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    memory_ = {memory, memory.get()};
  }
  bytes_ = bytes;
  pinned_ = pinned;
}

void StateSnapshot::take(std::span<const StatePart> parts) {
  std::size_t bytes = 0;
  std::vector<kernel::DeviceContext> streams;
  for (const StatePart& part : parts) {
    bytes += checkpoint_aligned(part.bytes.size());
    if (part.device && std::ranges::find(streams, *part.device) == streams.end())
      streams.push_back(*part.device);
  }
  reserve(bytes, !streams.empty());
  parts_.assign(parts.begin(), parts.end());
  std::byte* to = memory_.get();
  for (StatePart& part : parts_) {
    if (part.device) {
      const kernel::DeviceScope scope(*part.device);
      kernel::device().copy_to_host(to, part.bytes.data(), part.bytes.size());
      part.device.reset();
    } else if (!part.bytes.empty()) {
      copy_bytes(to, part.bytes.data(), part.bytes.size());
    }
    part.bytes = {to, part.bytes.size()};
    to += checkpoint_aligned(part.bytes.size());
  }
  copied_.clear();
  for (const kernel::DeviceContext& stream : streams) {
    const kernel::DeviceScope scope(stream);
    copied_.push_back(kernel::device().mark_moment());
  }
}

// Asks from time to time: to block in CUDA takes a core.
void StateSnapshot::await() const {
  for (const auto& moment : copied_)
    while (!kernel::device().reached(moment)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace starling::record

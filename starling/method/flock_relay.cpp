#include "starling/method/flock_relay.h"

#include <array>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/copy.h"

namespace starling::method {
namespace {

Missing missing_rule(const std::string& name) {
  if (name == "reference") return Missing::reference;
  if (name == "own") return Missing::own;
  return name == "zero" ? Missing::zero : Missing::counts;
}

// Precedes each saved mean: tree, neighbor and number of blocks.
using MessageNumbers = std::array<std::uint64_t, 3>;

}  // namespace

FlockRelay::FlockRelay(Flock flock, const std::string& name, const SchedulePtr& tree, const RelayRule& rule)
    : relay_(flock.relay(tree, Name(name + "/relay"),
                         {.missing = missing_rule(rule.missing), .overlap = rule.overlap})) {}

bool FlockRelay::ready() {
  for (Pending& one : pending_)
    if (!one.ready()) return false;
  return true;
}

void FlockRelay::await() {
  for (Pending& one : pending_) one.wait();
}

void FlockRelay::finish() {
  std::vector<Pending> pending;
  std::swap(pending, pending_);
  for (Pending& one : pending) one.wait();
}

std::vector<ChannelMemory> FlockRelay::memory() {
  const Relay::Memory memory = relay_.memory();
  std::vector<ChannelMemory> packed;
  for (const Relay::Memory::Message& message : memory.messages) {
    const MessageNumbers numbers = {message.tree, static_cast<std::uint64_t>(message.neighbor),
                                    message.blocks};
    ChannelMemory one{fmt::format("mean/{}/{}", message.tree, message.neighbor), {}};
    one.bytes.resize(sizeof numbers + message.sum.size());
    std::memcpy(one.bytes.data(), numbers.data(), sizeof numbers);
    copy_bytes(one.bytes.data() + sizeof numbers, message.sum.data(), message.sum.size());
    packed.push_back(std::move(one));
  }
  if (!memory.reference.empty()) packed.push_back({"reference", memory.reference});
  if (memory.filled) packed.push_back({"filled", {}});
  return packed;
}

void FlockRelay::remember(const std::vector<ChannelMemory>& packed) {
  Relay::Memory memory;
  for (const ChannelMemory& one : packed) {
    if (one.name == "reference") {
      memory.reference = one.bytes;
    } else if (one.name == "filled") {
      memory.filled = true;
    } else {
      if (one.name.starts_with("message/"))
        throw Error(
            "this checkpoint keeps the sums of a relay, which earlier versions wrote; relays keep means now. "
            "Resume it with the version that saved it, or start a new run");
      MessageNumbers numbers{};
      if (one.bytes.size() < sizeof numbers) throw Error(one.name + " is too short for a relay's message");
      std::memcpy(numbers.data(), one.bytes.data(), sizeof numbers);
      memory.messages.push_back({numbers[0],
                                 static_cast<Rank>(numbers[1]),
                                 numbers[2],
                                 {one.bytes.begin() + sizeof numbers, one.bytes.end()}});
    }
  }
  relay_.remember(memory);
}

}  // namespace starling::method

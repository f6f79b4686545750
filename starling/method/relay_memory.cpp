#include "starling/method/relay_memory.h"

#include <array>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/copy.h"

namespace starling {
namespace {

// Of each message: tree, neighbour and number of blocks; then comes the mean.
using Head = std::array<std::uint64_t, 3>;

}  // namespace

std::vector<ChannelMemory> pack(const Relay::Memory& memory) {
  std::vector<ChannelMemory> packed;
  for (const Relay::Memory::Message& message : memory.messages) {
    const Head head = {message.tree, static_cast<std::uint64_t>(message.neighbor), message.blocks};
    ChannelMemory one{fmt::format("mean/{}/{}", message.tree, message.neighbor), {}};
    one.bytes.resize(sizeof head + message.sum.size());
    std::memcpy(one.bytes.data(), head.data(), sizeof head);
    copy_bytes(one.bytes.data() + sizeof head, message.sum.data(), message.sum.size());
    packed.push_back(std::move(one));
  }
  if (!memory.reference.empty()) packed.push_back({"reference", memory.reference});
  if (memory.filled) packed.push_back({"filled", {}});
  return packed;
}

Relay::Memory unpack(const std::vector<ChannelMemory>& packed) {
  Relay::Memory memory;
  for (const ChannelMemory& one : packed) {
    if (one.name == "reference") {
      memory.reference = one.bytes;
    } else if (one.name == "filled") {
      memory.filled = true;
    } else {
      if (one.name.starts_with("message/"))
        throw Error(
            "this checkpoint keeps a relay's sums, which earlier versions wrote; relays keep means now. "
            "Resume it "
            "with the version that saved it, or start the relay anew");
      Head head{};
      if (one.bytes.size() < sizeof head) throw Error(one.name + " is too short for a relay's message");
      std::memcpy(head.data(), one.bytes.data(), sizeof head);
      memory.messages.push_back(
          {head[0], static_cast<Rank>(head[1]), head[2], {one.bytes.begin() + sizeof head, one.bytes.end()}});
    }
  }
  return memory;
}

}  // namespace starling

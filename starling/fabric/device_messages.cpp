#include "starling/fabric/device_messages.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/fabric/fabric.h"

namespace starling::fabric {

void check_messages_in(Fabric& fabric, MemoryKind memory, std::string_view who) {
  if (memory == MemoryKind::host || fabric.device_messages() != nullptr) return;
  throw InvalidArgument(
      fmt::format("{}: this flock has no messages in {}: its ranks must share a host, where CUDA's driver is "
                  "found when they "
                  "join; copy to the host first",
                  who, name(memory)));
}

Outgoing reserve(Fabric& fabric, std::size_t bytes, MemoryKind memory) {
  if (memory == MemoryKind::host) return fabric.reserve(bytes);
  check_messages_in(fabric, memory, "outgoing memory");
  return fabric.device_messages()->reserve(bytes);
}

}  // namespace starling::fabric

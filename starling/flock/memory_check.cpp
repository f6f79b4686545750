#include "starling/flock/memory_check.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/fabric/device_messages.h"

namespace starling::flock {

void check_memory(Fabric& fabric, const Pieces& pieces, std::string_view name) {
  const MemoryKind memory = pieces[0].in.memory;
  for (const Piece& piece : pieces)
    for (const ConstBuffer& buffer : {piece.in, ConstBuffer(piece.out)})
      if (buffer.memory != memory && buffer.address() != nullptr)
        throw InvalidArgument(
            fmt::format("{}: the tensors of one operation lie in one kind of memory, not in {} and {}", name,
                        starling::name(memory), starling::name(buffer.memory)));
  check_messages_in(fabric, memory, name);
}

void need_host_memory(const ConstBuffer& buffer, std::string_view operation, std::string_view name) {
  if (buffer.on_host()) return;
  throw InvalidArgument(fmt::format(
      "{}{} works on host memory, and these elements are in {}; copy them to the host first",
      name == operation ? "" : fmt::format("{}: ", name), operation, starling::name(buffer.memory)));
}

void need_host_memory(const Pieces& pieces, std::string_view operation, std::string_view name) {
  for (const Piece& piece : pieces) {
    need_host_memory(piece.in, operation, name);
    need_host_memory(piece.out, operation, name);
  }
}

}  // namespace starling::flock

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
            fmt::format("{}: the tensors of one operation must be in one kind of memory, not in {} and {}",
                        name, starling::name(memory), starling::name(buffer.memory)));
  check_messages_in(fabric, memory, name);
}

Buffer room_for(const Room& room, std::size_t count, const ConstBuffer& in, std::string_view name) {
  Buffer out = room(count);
  if (out.memory != in.memory && out.address() != nullptr)
    throw InvalidArgument(fmt::format("{}: the result's memory must be of the input's kind, {}, not {}", name,
                                      starling::name(in.memory), starling::name(out.memory)));
  return {in.dtype, out.address(), count, in.memory, out.stream};
}

}  // namespace starling::flock

#pragma once

#include <string_view>

#include "starling/fabric/fabric.h"
#include "starling/flock/block.h"

namespace starling::flock {

/// Throws InvalidArgument, with the operation's name, unless its pieces are in one kind of memory, in which
/// the fabric can send messages.
void check_memory(Fabric& fabric, const Pieces& pieces, std::string_view name);

/// The caller's memory for `count` result elements, which must be in the same kind of memory as the input.
Buffer room_for(const Room& room, std::size_t count, const ConstBuffer& in, std::string_view name);

}  // namespace starling::flock

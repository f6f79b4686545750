#pragma once

#include <string_view>

#include "starling/fabric/fabric.h"
#include "starling/flock/block.h"

namespace starling::flock {

/// Throws InvalidArgument, naming the operation, unless its pieces lie in one kind of memory, in which the
/// fabric has messages.
void check_memory(Fabric& fabric, const Pieces& pieces, std::string_view name);

/// The caller's memory for `count` elements of a result, which must lie where the input does.
Buffer room_for(const Room& room, std::size_t count, const ConstBuffer& in, std::string_view name);

}  // namespace starling::flock

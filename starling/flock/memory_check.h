#pragma once

#include <string_view>

#include "starling/fabric/fabric.h"
#include "starling/flock/block.h"

namespace starling::flock {

/// Throws InvalidArgument, naming the operation, unless its pieces lie in one kind of memory, in which the
/// fabric has messages.
void check_memory(Fabric& fabric, const Pieces& pieces, std::string_view name);

/// For operations that work on host memory only; throws InvalidArgument that says so.
void need_host_memory(const ConstBuffer& buffer, std::string_view operation, std::string_view name);
void need_host_memory(const Pieces& pieces, std::string_view operation, std::string_view name);

}  // namespace starling::flock

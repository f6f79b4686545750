#pragma once

#include <cstddef>

namespace starling::kernel {

/// Whether a result shall be left in the cache. `automatic` writes past it when the blocks of the call are
/// too large for it anyway and `out` is none of the inputs; who splits a large block into calls says
/// `streaming`. The bits are the same.
enum class Store { automatic, cached, streaming };

/// All blocks of a call together from which on `automatic` streams; about what the largest caches in use
/// hold.
inline constexpr std::size_t kStreamingBytes = std::size_t{48} << 20;

}  // namespace starling::kernel

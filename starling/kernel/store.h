#pragma once

#include <cstddef>

namespace starling::kernel {

/// Whether a result is left in the cache. `automatic` bypasses the cache if the blocks of the call are too
/// large for it anyway and `out` is not an input; a caller that splits a large block into calls passes
/// `streaming`. The bits are the same.
enum class Store { automatic, cached, streaming };

/// `automatic` streams if all blocks of a call together are at least this large; about the size of the
/// largest caches in use.
inline constexpr std::size_t kStreamingBytes = std::size_t{48} << 20;

}  // namespace starling::kernel

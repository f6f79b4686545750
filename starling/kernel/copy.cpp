#include "starling/kernel/copy.h"

#include <cstdint>
#include <cstring>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

namespace starling::kernel {
namespace {

namespace hn = hwy::HWY_NAMESPACE;  // the baseline: beyond the L1 cache, wider vectors are no faster

// From this size on, libc may copy with `rep movsb`, which at times took five times as long as plain stores
// (measured on AMD's Zen 4) into memory that other cores had just read.
constexpr std::size_t kPlainStores = 2048;
constexpr std::size_t kPastTheCache = std::size_t{32} << 20;

template <bool kStreaming>
void copy_vectors(std::uint8_t* out, const std::uint8_t* in, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto store = [&](auto vector, std::uint8_t* to) {
    if constexpr (kStreaming) {
      hn::Stream(vector, d, to);
    } else {
      hn::Store(vector, d, to);
    }
  };
  const std::size_t head = (lanes - reinterpret_cast<std::uintptr_t>(out) % lanes) % lanes;
  std::memcpy(out, in, head);  // so that the stores are aligned
  std::size_t i = head;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, in + i);
    const auto b = hn::LoadU(d, in + i + lanes);
    const auto c = hn::LoadU(d, in + i + 2 * lanes);
    const auto e = hn::LoadU(d, in + i + 3 * lanes);
    store(a, out + i);
    store(b, out + i + lanes);
    store(c, out + i + 2 * lanes);
    store(e, out + i + 3 * lanes);
  }
  std::memcpy(out + i, in + i, bytes - i);
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  if (bytes == 0) return;
  if (bytes < kPlainStores) {
    std::memcpy(out, in, bytes);
  } else if (bytes < kPastTheCache) {
    copy_vectors<false>(out, in, bytes);
  } else {
    copy_vectors<true>(out, in, bytes);
    hwy::FlushStream();  // before another thread learns of the block
  }
}

}  // namespace starling::kernel

#include "starling/kernel/copy.h"

#include <cstdint>
#include <cstring>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

namespace starling {
namespace {

namespace hn = hwy::HWY_NAMESPACE;  // the baseline: past the cache, wider vectors are no faster

constexpr std::size_t kLarge = std::size_t{32} << 20;

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes < kLarge) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  // Stores past the cache must be aligned.
  const std::size_t head = (lanes - reinterpret_cast<std::uintptr_t>(out) % lanes) % lanes;
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, in + i);
    const auto b = hn::LoadU(d, in + i + lanes);
    const auto c = hn::LoadU(d, in + i + 2 * lanes);
    const auto e = hn::LoadU(d, in + i + 3 * lanes);
    hn::Stream(a, d, out + i);
    hn::Stream(b, d, out + i + lanes);
    hn::Stream(c, d, out + i + 2 * lanes);
    hn::Stream(e, d, out + i + 3 * lanes);
  }
  hwy::FlushStream();  // before anybody is told that the block is there
  std::memcpy(out + i, in + i, bytes - i);
}

}  // namespace starling

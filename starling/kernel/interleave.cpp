#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/interleave.cpp"
#include "starling/kernel/interleave.h"

#include <cstring>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// Vector instructions for two parts, the usual case; more parts go element by element.
template <typename E>
void deinterleave_as(std::span<std::byte* const> parts, const void* whole, std::size_t count) {
  const auto* from = static_cast<const E*>(whole);
  std::size_t i = 0;
  if (parts.size() == 2) {
    const hn::ScalableTag<E> d;
    auto* even = reinterpret_cast<E*>(parts[0]);
    auto* odd = reinterpret_cast<E*>(parts[1]);
    for (; i + 2 * hn::Lanes(d) <= count; i += 2 * hn::Lanes(d)) {
      auto a = hn::Zero(d);
      auto b = hn::Zero(d);
      hn::LoadInterleaved2(d, from + i, a, b);
      hn::StoreU(a, d, even + i / 2);
      hn::StoreU(b, d, odd + i / 2);
    }
  }
  for (; i < count; ++i)
    std::memcpy(parts[i % parts.size()] + i / parts.size() * sizeof(E), from + i, sizeof(E));
}

template <typename E>
void interleave_as(void* whole, std::span<std::byte* const> parts, std::size_t count) {
  auto* to = static_cast<E*>(whole);
  std::size_t i = 0;
  if (parts.size() == 2) {
    const hn::ScalableTag<E> d;
    const auto* even = reinterpret_cast<const E*>(parts[0]);
    const auto* odd = reinterpret_cast<const E*>(parts[1]);
    for (; i + 2 * hn::Lanes(d) <= count; i += 2 * hn::Lanes(d))
      hn::StoreInterleaved2(hn::LoadU(d, even + i / 2), hn::LoadU(d, odd + i / 2), d, to + i);
  }
  for (; i < count; ++i)
    std::memcpy(to + i, parts[i % parts.size()] + i / parts.size() * sizeof(E), sizeof(E));
}

// Returns false for unsupported element sizes.
bool deinterleave_here(std::span<std::byte* const> parts, const void* from, std::size_t count,
                       std::size_t element) {
  if (element == 2)
    deinterleave_as<std::uint16_t>(parts, from, count);
  else if (element == 4)
    deinterleave_as<std::uint32_t>(parts, from, count);
  else if (element == 8)
    deinterleave_as<std::uint64_t>(parts, from, count);
  else
    return false;
  return true;
}

bool interleave_here(void* to, std::span<std::byte* const> parts, std::size_t count, std::size_t element) {
  if (element == 2)
    interleave_as<std::uint16_t>(to, parts, count);
  else if (element == 4)
    interleave_as<std::uint32_t>(to, parts, count);
  else if (element == 8)
    interleave_as<std::uint64_t>(to, parts, count);
  else
    return false;
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {
namespace {

[[noreturn]] void refuse_size(std::size_t element) {
  throw InvalidArgument("only elements of 2, 4 or 8 bytes can be interleaved, not of " +
                        std::to_string(element));
}

}  // namespace

void deinterleave(std::span<std::byte* const> parts, const void* from, std::size_t count,
                  std::size_t element) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(deinterleave_here)) kTable[] =
      STARLING_TARGETS_OF(deinterleave_here);
  if (!choose(kTable)(parts, from, count, element)) refuse_size(element);
}

void interleave(void* to, std::span<std::byte* const> parts, std::size_t count, std::size_t element) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(interleave_here)) kTable[] =
      STARLING_TARGETS_OF(interleave_here);
  if (!choose(kTable)(to, parts, count, element)) refuse_size(element);
}

}  // namespace starling::kernel
#endif

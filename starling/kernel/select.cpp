#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/select.cpp"
#include "starling/kernel/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <vector>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE auto magnitudes(D d, const float* from) {
  const hn::RebindToSigned<D> di;  // there is no sign bit; signed comparisons are cheap everywhere
  return hn::BitCast(di, hn::Abs(hn::LoadU(d, from)));
}

// Calls found(index) for the (usually few) elements with wanted(di, magnitudes).
template <typename Wanted, typename Found>
HWY_INLINE void for_few(const float* in, std::size_t count, const Wanted& wanted, const Found& found) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToSigned<decltype(one)> one_i;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto mask = wanted(di, magnitudes(d, in + i));
    if (HWY_LIKELY(hn::AllFalse(di, mask))) continue;
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(di, mask, bytes);
    for (unsigned bits = bytes[0] | (unsigned{bytes[1]} << 8); bits != 0; bits &= bits - 1)
      found(i + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  for (; i < count; ++i)
    if (!hn::AllFalse(one_i, wanted(one_i, magnitudes(one, in + i)))) found(i);
}

void collect_here(const float* in, std::size_t count, std::uint32_t least, std::uint32_t most,
                  std::uint32_t* magnitude) {
  const auto wanted = [&](auto di, auto values) HWY_ATTR {
    const auto below = hn::Set(di, static_cast<std::int32_t>(least) - 1);
    return hn::AndNot(hn::Gt(values, hn::Set(di, static_cast<std::int32_t>(most))), hn::Gt(values, below));
  };
  for_few(in, count, wanted, [&](std::size_t i) HWY_ATTR {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, sizeof(bits));
    *magnitude++ = bits & 0x7FFFFFFFU;
  });
}

void take_here(const float* in, std::size_t count, Cut cut, std::uint32_t* indices, float* values) {
  const auto least = static_cast<std::int32_t>(cut.magnitude);
  const auto wanted = [&](auto di, auto found) HWY_ATTR { return hn::Gt(found, hn::Set(di, least - 1)); };
  for_few(in, count, wanted, [&](std::size_t i) HWY_ATTR {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, sizeof(bits));
    if ((bits & 0x7FFFFFFFU) == cut.magnitude && cut.ties-- == 0) {
      cut.ties = 0;
      return;
    }
    *indices++ = static_cast<std::uint32_t>(i);
    *values++ = in[i];
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {
namespace {

// A magnitude has 31 bits: counts the 11 leading bits over all elements, then twice ten bits over the rest.
constexpr unsigned kBelowLeading = 20;
constexpr std::size_t kBins = std::size_t{1} << 11;

// Uses four tables in turn: increments of one bin by adjacent elements would wait for each other.
std::vector<std::uint32_t> count_leading(const float* in, std::size_t count) {
  std::vector<std::uint32_t> bins(4 * kBins);
  const auto bin = [&](std::size_t i) {
    std::uint32_t bits;
    std::memcpy(&bits, in + i, sizeof(bits));
    return (bits & 0x7FFFFFFFU) >> kBelowLeading;
  };
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (std::size_t t = 0; t < 4; ++t) ++bins[t * kBins + bin(i + t)];
  for (; i < count; ++i) ++bins[bin(i)];
  for (std::size_t b = 0; b < kBins; ++b)
    bins[b] += bins[kBins + b] + bins[2 * kBins + b] + bins[3 * kBins + b];
  bins.resize(kBins);
  return bins;
}

// Finds the bin with the k-th largest element; k becomes its position within the bin.
template <typename Bins>
std::size_t bin_of(const Bins& bins, std::size_t& k) {
  std::size_t bin = bins.size() - 1;
  for (; k > bins[bin]; --bin) k -= bins[bin];
  return bin;
}

}  // namespace

Cut cut_of_largest(const float* in, std::size_t count, std::size_t k) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(collect_here)) kTable[] = STARLING_TARGETS_OF(collect_here);
  const std::vector<std::uint32_t> leading = count_leading(in, count);
  std::size_t prefix = bin_of(leading, k);
  std::vector<std::uint32_t> left(leading[prefix]);
  const auto least = static_cast<std::uint32_t>(prefix << kBelowLeading);
  choose(kTable)(in, count, least, least + ((1U << kBelowLeading) - 1), left.data());
  for (const unsigned below : {10U, 0U}) {
    std::array<std::size_t, 1024> bins{};
    for (const std::uint32_t magnitude : left) ++bins[(magnitude >> below) % 1024];
    prefix = prefix * 1024 + bin_of(bins, k);
    std::erase_if(left, [&](std::uint32_t magnitude) { return (magnitude >> below) != prefix; });
  }
  return {static_cast<std::uint32_t>(prefix), k};
}

void take_largest(const float* in, std::size_t count, Cut cut, std::uint32_t* indices, float* values) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(take_here)) kTable[] = STARLING_TARGETS_OF(take_here);
  choose(kTable)(in, count, cut, indices, values);
}

}  // namespace starling::kernel
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/convert.cpp"
#include "starling/kernel/convert.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

template <typename From, typename To>
void convert_as(const void* in, void* out, std::size_t count, bool streaming) {
  using Wide = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
  const From* from = static_cast<const From*>(in);
  const auto load_one = [&](auto d, std::size_t i, Whole) HWY_ATTR { return load(d, from + i); };
  if (streaming) return map<Wide, StoreMode::streaming>(static_cast<To*>(out), count, load_one);
  map<Wide>(static_cast<To*>(out), count, load_one);
}

// Returns false if there is no such conversion.
bool convert_here(DType from, const void* in, DType to, void* out, std::size_t count, bool streaming) {
  using enum DType;
  const auto is = [&](DType source, DType destination) { return from == source && to == destination; };
  if (is(float32, float16))
    convert_as<float, Half>(in, out, count, streaming);
  else if (is(float16, float32))
    convert_as<Half, float>(in, out, count, streaming);
  else if (is(float32, bfloat16))
    convert_as<float, BFloat16>(in, out, count, streaming);
  else if (is(bfloat16, float32))
    convert_as<BFloat16, float>(in, out, count, streaming);
  else if (is(float32, float64))
    convert_as<float, double>(in, out, count, streaming);
  else if (is(float64, float32))
    convert_as<double, float>(in, out, count, streaming);
  else
    return false;
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace starling::kernel {

void convert(DType from, const void* in, DType to, void* out, std::size_t count, Store store) {
  if (from == to) {
    const std::size_t bytes = count * size_of(from);
    if (bytes > 0 && in != out) std::memcpy(out, in, bytes);
    return;
  }
  const bool streaming = store == Store::automatic ? count * (size_of(from) + size_of(to)) >= kStreamingBytes
                                                   : store == Store::streaming;
  static constexpr decltype(&HWY_STATIC_DISPATCH(convert_here)) kTable[] = STARLING_TARGETS_OF(convert_here);
  if (!choose(kTable)(from, in, to, out, count, streaming))
    throw InvalidArgument("convert: no conversion from " + name(from) + " to " + name(to) +
                          "; there are float32 <-> float16, bfloat16 and float64");
}

}  // namespace starling::kernel
#endif

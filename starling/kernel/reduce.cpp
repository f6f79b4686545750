#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/reduce.cpp"
#include "starling/kernel/reduce.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/average.h"
#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

// Processors disagree about NaN and signed zeros in their minimum instructions, so this uses comparisons.
// Equal values differ at most in the sign of zero: OR of the bits prefers -0.0, AND +0.0. If only b is NaN,
// no comparison holds and b is taken.
struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V least = hn::IfThenElse(hn::Lt(a, b), a, b);
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), least));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V most = hn::IfThenElse(hn::Gt(a, b), a, b);
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), most));
    } else {
      return hn::Max(a, b);
    }
  }
};

template <typename T, typename Operation>
void fold(void* accumulator, const void* in, std::size_t count, Operation operation) {
  T* left = static_cast<T*>(accumulator);
  const T* right = static_cast<const T*>(in);
  map<Element<T>>(left, count, [&](auto d, std::size_t i, auto loader) HWY_ATTR {
    return operation(d, loader(d, left + i), loader(d, right + i));
  });
}

template <typename T>
void reduce_as(Reduction reduction, void* accumulator, const void* in, std::size_t count) {
  if (reduction == Reduction::min) return fold<T>(accumulator, in, count, Min());
  if (reduction == Reduction::max) return fold<T>(accumulator, in, count, Max());
  if constexpr (is_floating_element<T>)
    return fold<T>(accumulator, in, count, Sum());
  else
    fold<std::make_unsigned_t<T>>(accumulator, in, count,
                                  Sum());  // unsigned sums wrap around
}

void reduce_here(Reduction reduction, DType dtype, void* accumulator, const void* in, std::size_t count) {
  dispatch(dtype,
           [&]<typename T>(std::type_identity<T>) { reduce_as<T>(reduction, accumulator, in, count); });
}

void divide_here(DType dtype, void* data, double number, std::size_t count) {
  dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating_element<T>) {
      T* values = static_cast<T*>(data);
      const auto divisor = static_cast<Element<T>>(number);
      map<Element<T>>(values, count, [&](auto d, std::size_t i, auto loader) HWY_ATTR {
        return hn::Div(loader(d, values + i), hn::Set(d, divisor));
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

std::string name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
    case Reduction::average:
      return "average";
  }
  return "reduction " + std::to_string(static_cast<int>(reduction));
}

void reduce(Reduction reduction, DType dtype, void* accumulator, const void* in, std::size_t count) {
  if (reduction < Reduction::sum || reduction > Reduction::average)
    throw InvalidArgument("reduce: unknown " + name(reduction) + "; valid are sum, min, max, average");
  static constexpr decltype(&HWY_STATIC_DISPATCH(reduce_here)) kTable[] = STARLING_TARGETS_OF(reduce_here);
  choose(kTable)(reduction, dtype, accumulator, in, count);
}

namespace {

void check_floating(DType dtype, const char* kernel) {
  if (!is_floating(dtype))
    throw InvalidArgument(std::string(kernel) +
                          ": needs a floating dtype (float64, float32, float16, bfloat16), not " +
                          name(dtype));
}

}  // namespace

void divide(DType dtype, void* data, double number, std::size_t count) {
  check_floating(dtype, "divide");
  static constexpr decltype(&HWY_STATIC_DISPATCH(divide_here)) kTable[] = STARLING_TARGETS_OF(divide_here);
  choose(kTable)(dtype, data, number, count);
}

void scale(DType dtype, void* data, double factor, std::size_t count) {
  check_floating(dtype, "scale");
  const Term term{data, factor};
  combine(dtype, data, {&term, 1}, count);
}

}  // namespace starling::kernel
#endif

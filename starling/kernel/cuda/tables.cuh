#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "starling/base/dtype.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/shape.h"

// Tables of the kernels that a template generates.

namespace starling::kernel::cuda {

template <auto kValue>
using Constant = std::integral_constant<decltype(kValue), kValue>;

/// A table of kernels by Access: pick(Constant<Access>) returns one of them.
template <typename Pick>
constexpr auto by_access(const Pick& pick) {
  return std::array{pick(Constant<Access::single>()), pick(Constant<Access::words>()),
                    pick(Constant<Access::streaming>())};
}

/// The kernels of a sum by its number of terms: 1, 2, 3, 4, at most 7, any (0: a loop). Large blocks have a
/// kernel for each (unless `few`), the others fewer.
inline constexpr int kTermClasses = 6;
inline constexpr int kTermsOfClass[kTermClasses] = {1, 2, 3, 4, 7, 0};
inline std::size_t term_class(std::size_t terms) {
  return terms <= 4 ? terms - 1 : terms <= 7 ? 4 : 5;
}
constexpr int terms_of(Access access, int index, bool few) {
  const int terms = kTermsOfClass[index];
  if ((access == Access::streaming && !few) || terms == 1) return terms;
  return terms >= 2 && terms <= 4 ? 4 : 0;
}

/// Kernels of a sum by Access and term_class(): pick(Constant<Access>, Constant<terms>) is one of them.
template <bool kFew = false, typename Pick>
constexpr auto by_terms(const Pick& pick) {
  return by_access([&](auto access) {
    return [&]<int... kClass>(std::integer_sequence<int, kClass...>) {
      return std::array{pick(access, Constant<terms_of(access(), kClass, kFew)>())...};
    }
    (std::make_integer_sequence<int, kTermClasses>());
  });
}

/// Calls body with a number of the parameters' type, float32 or float64.
template <typename Body>
void as_parameters(DType dtype, const Body& body) {
  dtype == DType::float64 ? body(double{}) : body(float{});
}

/// Calls body with the type of floating elements.
template <typename Body>
void as_floating(DType dtype, const Body& body) {
  dispatch(dtype, [&]<typename E>(std::type_identity<E> type) {
    if constexpr (is_floating_element<E>) body(type);
  });
}

/// Loads a kernel into the current context, see load_kernels().
template <typename... Arguments>
void load(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}
template <typename Kernel, std::size_t kCount>
void load(const std::array<Kernel, kCount>& kernels) {
  for (const Kernel& kernel : kernels) load(kernel);
}

}  // namespace starling::kernel::cuda

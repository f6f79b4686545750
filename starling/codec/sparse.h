#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "starling/base/parameters.h"
#include "starling/codec/host_codec.h"

// Helpers of codecs that send a few elements of a parameter and treat the rest as zero.

namespace starling::codec {

inline Parameter fraction_parameter() {
  return {"fraction", "0.01", "of the elements that are sent, 1e-9 to 1; at least one"};
}

inline double fraction_of(const Parameters& given) {
  return given.number("fraction", 1e-9, 1);
}

/// ceil(fraction * count), but at least 1. Tolerates rounding: 0.07 of 100, a little above 7 in float64, is
/// 7.
inline std::size_t kept(double fraction, std::size_t count) {
  const double exact = fraction * static_cast<double>(count) * (1 - 1e-12);
  return std::clamp(static_cast<std::size_t>(std::ceil(exact)), std::min<std::size_t>(1, count), count);
}

/// out[index(j)] = values[j] for j < k, zero elsewhere; or out[index(j)] += weight * values[j].
template <typename Index>
void scatter(const float* values, std::size_t k, Buffer out, const Index& index) {
  std::memset(out.host_data(), 0, out.bytes());
  with_elements(out, [&]<typename E>(E* x) {
    for (std::size_t j = 0; j < k; ++j) x[index(j)] = static_cast<E>(values[j]);
  });
}

template <typename Index>
void scatter_add(const float* values, std::size_t k, double weight, Buffer out, const Index& index) {
  with_elements(out, [&]<typename E>(E* x) {
    for (std::size_t j = 0; j < k; ++j) x[index(j)] += static_cast<E>(weight) * static_cast<E>(values[j]);
  });
}

}  // namespace starling::codec

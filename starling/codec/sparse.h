#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/codec/codec.h"
#include "starling/kernel/convert.h"

// What codecs share that send a few elements of a parameter and mean zero by the rest.

namespace starling::codec {

inline Parameter fraction_parameter() {
  return {"fraction", "0.01", "of the elements that are sent, 1e-9 to 1; at least one"};
}

inline double fraction_of(const Parameters& given) {
  return given.number("fraction", 1e-9, 1);
}

/// ceil(fraction * count), at least 1 of at least 1; 0.07 of 100, a little above 7 in float64, is 7.
inline std::size_t kept(double fraction, std::size_t count) {
  const double exact = fraction * static_cast<double>(count) * (1 - 1e-12);
  return std::clamp(static_cast<std::size_t>(std::ceil(exact)), std::min<std::size_t>(1, count), count);
}

/// The values as float32: themselves, or converted into `scratch`.
inline const float* as_floats(DType dtype, const void* in, std::size_t count, std::vector<float>& scratch) {
  if (!is_wide(dtype)) return static_cast<const float*>(in);
  scratch.resize(count);
  convert(DType::float64, in, DType::float32, scratch.data(), count);
  return scratch.data();
}

/// out[index(j)] = values[j] for j below k, the rest is zero; or out[index(j)] += weight * values[j].
template <typename Index>
void scatter(DType dtype, const float* values, std::size_t k, std::size_t count, void* out,
             const Index& index) {
  const bool wide = is_wide(dtype);
  if (count > 0) std::memset(out, 0, count * (wide ? sizeof(double) : sizeof(float)));
  for (std::size_t j = 0; j < k; ++j)
    if (wide)
      static_cast<double*>(out)[index(j)] = static_cast<double>(values[j]);
    else
      static_cast<float*>(out)[index(j)] = values[j];
}

template <typename Index>
void scatter_add(DType dtype, const float* values, std::size_t k, double weight, void* out,
                 const Index& index) {
  const bool wide = is_wide(dtype);
  for (std::size_t j = 0; j < k; ++j)
    if (wide)
      static_cast<double*>(out)[index(j)] += weight * static_cast<double>(values[j]);
    else
      static_cast<float*>(out)[index(j)] += static_cast<float>(weight) * values[j];
}

}  // namespace starling::codec

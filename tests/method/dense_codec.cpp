#include "method/dense_codec.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "starling/base/spec.h"

namespace starling::method {

Number as_half(Number exact) {
  const Number value = static_cast<float>(exact);
  if (value == 0) return value;
  constexpr int kFraction = 10;
  constexpr int kLeastExponent = -14;
  const Number unit = std::ldexp(1.0L, std::max(std::ilogb(value), kLeastExponent) - kFraction);
  return std::nearbyint(value / unit) * unit;
}

Vector as_uint8(const Vector& vector) {
  constexpr std::size_t kChunk = 2048;
  Vector result;
  for (std::size_t begin = 0; begin < vector.size(); begin += kChunk) {
    std::vector<float> x;
    for (std::size_t k = begin; k < std::min(begin + kChunk, vector.size()); ++k)
      x.push_back(static_cast<float>(vector[k]));
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    const float scale = 255.0F / (*most - *least + 1e-7F);
    const float upper = std::rint(*most * scale);
    const float lower = upper - 255.0F;
    for (const float value : x) {
      const float level = std::clamp(std::min(std::rint(value * scale), upper) - lower, 0.0F, 255.0F);
      result.push_back((level + lower) / scale);
    }
  }
  return result;
}

Vector as_top_k(const Vector& vector, std::size_t k) {
  const std::vector<float> x(vector.begin(), vector.end());
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return std::abs(x[left]) > std::abs(x[right]);
  });
  Vector result(x.size());
  for (std::size_t place = 0; place < std::min(k, x.size()); ++place) result[order[place]] = x[order[place]];
  return result;
}

Vector decoded(const std::string& codec, const Vector& vector) {
  const Spec spec = parse_spec(codec);
  if (spec.word == "identity") return vector;
  if (spec.word == "uint8") return as_uint8(vector);
  if (spec.word == "top-k") {
    const double fraction = std::stod(spec.arguments.at(0).value.word);
    return as_top_k(vector,
                    static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(vector.size()))));
  }
  if (spec.word != "fp16") throw std::invalid_argument("no dense codec " + codec);
  Vector result;
  for (const Number value : vector) result.push_back(as_half(value));
  return result;
}

}  // namespace starling::method

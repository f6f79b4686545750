#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "cuda_test.h"
#include "starling/kernel/arithmetic.h"

// Helpers shared by the tests of kernels: blocks on which the host and the device compute the same.

namespace starling::kernel::cuda {

inline const Arithmetic& on_host() {
  return arithmetic_in(MemoryKind::host);
}
inline const Arithmetic& on_gpu() {
  return test_gpu().arithmetic();
}
inline void finish() {
  test_gpu().synchronize();
}

/// Blocks with the same values on the host and on the device.
template <typename T>
class Twins {
 public:
  Twins(std::size_t number, std::size_t count, Layout layout, std::uint64_t seed) {
    for (std::size_t i = 0; i < number; ++i)
      blocks_.emplace_back(odd_numbers<T>(count, 100 * seed + i), offset_in(layout, i));
  }

  Twin<T>& operator[](std::size_t i) { return blocks_[i]; }
  std::vector<Term> host_terms(std::span<const double> weights) {
    std::vector<Term> terms;
    for (std::size_t i = 0; i < weights.size(); ++i)
      terms.emplace_back(ConstBuffer(blocks_[i].host()), weights[i]);
    return terms;
  }
  std::vector<Term> device_terms(std::span<const double> weights) {
    std::vector<Term> terms;
    for (std::size_t i = 0; i < weights.size(); ++i)
      terms.emplace_back(ConstBuffer(blocks_[i].device()), weights[i]);
    return terms;
  }
  testing::AssertionResult same() {
    for (Twin<T>& block : blocks_)
      if (const auto result = block.same(); !result) return result;
    return testing::AssertionSuccess();
  }

 private:
  std::vector<Twin<T>> blocks_;
};

/// Weights of every form of a sum, see kernel/average.h.
inline std::vector<std::vector<double>> weights_of(std::size_t n) {
  const auto number = static_cast<double>(n);
  std::vector<std::vector<double>> all;
  all.emplace_back(n, 1 / number);  // a mean, or an average of a power of two
  std::vector<double> average(n, 0.5 / number);
  average[0] = 1 - 0.5 / number * (number - 1);
  all.push_back(average);
  std::vector<double> later = average;  // an average whose first term has no weight
  std::swap(later.front(), later.back());
  later.front() = 0;
  later.back() += 0.5 / number;
  all.push_back(later);
  std::vector<double> products(n);
  for (std::size_t t = 0; t < n; ++t) products[t] = 0.75 - 0.5 * static_cast<double>(t);
  all.push_back(products);
  products[n / 2] = std::numeric_limits<double>::quiet_NaN();
  all.push_back(products);
  products[n / 2] = std::numeric_limits<double>::infinity();
  all.push_back(products);
  return all;
}

inline constexpr std::size_t kTermCounts[] = {1, 2, 3, 4, 5, 6, 9, 16};
// Odd lengths: of less than a thread, a thread, a block, and more than blocks of every type have.
inline constexpr std::size_t kCounts[] = {1, 7, 1003, 2311};

}  // namespace starling::kernel::cuda

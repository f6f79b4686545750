#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "twins.h"

namespace starling::kernel::cuda {
namespace {

template <typename T>
void check_sum_of_squares() {
  for (const std::size_t count : {1U, 7U, 8U, 1003U, 1024U, 16384U, 16385U, 65'537U, 100'003U})
    for (const std::size_t offset : {0U, 1U, 4U}) {
      Random random(count, 1, 1);
      std::vector<T> values(count);
      for (T& value : values) value = static_cast<T>(random.uniform() * 4 - 2);
      Twin<T> x(values, offset);
      ASSERT_EQ(on_gpu().sum_of_squares(x.device()), on_host().sum_of_squares(x.host())) << count;
    }
}

TEST(CudaMeasuresTest, SumsSquaresAsTheHost) {
  check_sum_of_squares<float>();
  check_sum_of_squares<double>();
  std::vector<float> large(3, 1e30F);
  large.push_back(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(on_gpu().sum_of_squares(Twin<float>(large, 0).device())));
  EXPECT_EQ(on_gpu().sum_of_squares(Buffer(DType::float32, nullptr, 0, MemoryKind::cuda, nullptr)), 0);
}

TEST(CudaMeasuresTest, AddsSquaresAsTheHost) {
  Twin<double> sum({3}, 0);
  std::uint64_t seed = 1;
  const auto add = [&]<typename T>(T) {
    for (const std::size_t count : {0U, 1U, 7U, 1003U, 65'537U}) {
      Random random(++seed, 1, 1);
      std::vector<T> values(count);
      for (T& value : values) value = static_cast<T>(static_cast<float>(random.uniform() * 4 - 2));
      Twin<T> x(values, seed % 3);
      on_host().add_squares(sum.host(), x.host(), 0.3);
      on_gpu().add_squares(sum.device(), x.device(), 0.3);
      finish();
    }
  };
  add(float{});
  add(double{});
  EXPECT_TRUE(sum.same());
  // Sums of 16-bit elements are in another order than on the host.
  Twin<double> other({0}, 0);
  Twin<BFloat16> x(std::vector<BFloat16>(1003, BFloat16(1.5F)), 1);
  Twin<Half> y(std::vector<Half>(1003, Half(0.25F)), 3);
  on_gpu().add_squares(other.device(), x.device(), 2);
  on_gpu().add_squares(other.device(), y.device(), 1);
  *other.host().host<double>() = 1003 * (9 + 0.0625);
  finish();
  EXPECT_TRUE(other.same());
}

template <typename T>
void check_all_finite() {
  for (const std::size_t count : kCounts)
    for (const std::size_t offset : {0U, 3U}) {
      std::vector<T> values(count, static_cast<T>(3.0F));
      ASSERT_TRUE(on_gpu().all_finite(Twin<T>(values, offset).device()));
      for (const std::size_t place : {std::size_t{0}, count / 2, count - 1})
        for (const float odd :
             {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
              std::numeric_limits<float>::quiet_NaN()}) {
          std::vector<T> one = values;
          one[place] = static_cast<T>(odd);
          ASSERT_FALSE(on_gpu().all_finite(Twin<T>(one, offset).device()));
        }
    }
}

TEST(CudaMeasuresTest, FindsNonFiniteValues) {
  check_all_finite<float>();
  check_all_finite<double>();
  check_all_finite<Half>();
  check_all_finite<BFloat16>();
  std::vector<std::int32_t> integers(5, -1);
  EXPECT_TRUE(on_gpu().all_finite(Twin<std::int32_t>(integers, 0).device()));
}

}  // namespace
}  // namespace starling::kernel::cuda

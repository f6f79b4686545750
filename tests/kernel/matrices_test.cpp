#include "starling/kernel/matrices.h"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>

#include "blocks.h"

namespace starling::kernel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename T>
Buffer as_buffer(std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}

const FactorShape kShapes[] = {{1, 1, 1},   {1, 300, 2}, {300, 1, 3},   {5, 7, 8},    {131, 67, 1},
                               {37, 64, 9}, {8, 129, 4}, {130, 257, 3}, {3, 9001, 2}, {2500, 30, 2}};

// The largest distance from a product of numbers in -1 .. 1 with this many terms: at most 128 of them are
// added up in T, which are below 128 in magnitude.
template <typename T>
double tolerance(std::size_t terms) {
  return static_cast<double>(std::numeric_limits<T>::epsilon()) * static_cast<double>(terms) * 8;
}

class MatricesTest : public EveryTarget {
 protected:
  template <typename T>
  void check_products() {
    for (const auto& [rows, columns, rank] : kShapes) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", " + std::to_string(rank));
      std::vector<T> m = small_numbers<T>(rows * columns, 1), p = small_numbers<T>(rows * rank, 2),
                     q = small_numbers<T>(columns * rank, 3);
      std::vector<T> p1(p.size(), 7), q1(q.size(), 7), m1(m.size(), 7);
      multiply(as_buffer(p1), as_buffer(m), as_buffer(q), rank);
      multiply_transposed(as_buffer(q1), as_buffer(m), as_buffer(p), rank);
      multiply_factors(as_buffer(m1), as_buffer(p), as_buffer(q), rank);
      std::vector<double> p2(p.size()), q2(q.size()), m2(m.size());
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          for (std::size_t r = 0; r < rank; ++r) {
            const auto a = static_cast<double>(m[i * columns + j]), b = static_cast<double>(p[r * rows + i]),
                       c = static_cast<double>(q[r * columns + j]);
            p2[r * rows + i] += a * c;
            q2[r * columns + j] += a * b;
            m2[i * columns + j] += b * c;
          }
      for (std::size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(p1[i], p2[i], tolerance<T>(columns)) << i;
      for (std::size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(q1[i], q2[i], tolerance<T>(rows)) << i;
      for (std::size_t i = 0; i < m.size(); ++i) ASSERT_NEAR(m1[i], m2[i], tolerance<T>(rank)) << i;
    }
  }

  template <typename T>
  void check_orthonormal() {
    constexpr std::size_t kRank = 5;
    for (const std::size_t rows : {5U, 64U, 1023U, 3000U}) {
      std::vector<T> p = small_numbers<T>(rows * kRank, rows);
      const std::vector<T> before = p;
      orthonormalize(as_buffer(p), kRank);
      const auto product = [&](const std::vector<T>& a, std::size_t x, const std::vector<T>& b,
                               std::size_t y) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i)
          sum += static_cast<double>(a[x * rows + i]) * static_cast<double>(b[y * rows + i]);
        return sum;
      };
      const double near = rows == 5 ? 1e-3 : 1e-5;  // five random columns are nearly dependent
      for (std::size_t x = 0; x < kRank; ++x) {
        EXPECT_GT(product(p, x, before, x), 0);
        for (std::size_t y = 0; y <= x; ++y) {
          EXPECT_NEAR(product(p, x, p, y), x == y ? 1 : 0, near) << rows << ": " << x << ", " << y;
          EXPECT_NEAR(y < x ? product(p, x, before, y) : 0, 0, near * std::sqrt(rows));
        }
      }
    }
  }
};
STARLING_ON_EVERY_TARGET(MatricesTest);

TEST_P(MatricesTest, MultipliesFactors) {
  check_products<float>();
  check_products<double>();
}

TEST_P(MatricesTest, MakesColumnsOrthonormal) {
  check_orthonormal<float>();
  check_orthonormal<double>();
}

TEST_P(MatricesTest, HasTheSameBitsOnEveryTarget) {
  const auto compute = []<typename T>(T, const FactorShape& shape) {
    const auto& [rows, columns, rank] = shape;
    std::vector<T> m = odd_numbers<T>(rows * columns, 1), p = small_numbers<T>(rows * rank, 2),
                   q = small_numbers<T>(columns * rank, 3);
    std::vector<T> p1(p.size()), q1(q.size()), m1(m.size());
    multiply(as_buffer(p1), as_buffer(m), as_buffer(q), rank);
    multiply_transposed(as_buffer(q1), as_buffer(m), as_buffer(p), rank);
    multiply_factors(as_buffer(m1), as_buffer(p), as_buffer(q), rank);
    orthonormalize(as_buffer(p), rank);
    std::vector<T> all = p1;
    for (const auto* one : {&q1, &m1, &p}) all.insert(all.end(), one->begin(), one->end());
    return all;
  };
  for (const FactorShape& shape : kShapes) {
    const auto narrow = compute(float{}, shape);
    const auto wide = compute(double{}, shape);
    use_target(Target::baseline);
    EXPECT_TRUE(same_blocks(narrow, compute(float{}, shape)));
    EXPECT_TRUE(same_blocks(wide, compute(double{}, shape)));
    use_target(GetParam());
  }
}

TEST(FactorsTest, ColumnsOfZerosStayZero) {
  std::vector<float> p = {3, 4, 0, 0, 8, 6};
  orthonormalize(as_buffer(p), 3);
  EXPECT_EQ(p, (std::vector<float>{0.6F, 0.8F, 0, 0, p[4], p[5]}));
  EXPECT_NEAR(p[4], 0.8F, 1e-6);
  EXPECT_NEAR(p[5], -0.6F, 1e-6);
}

TEST(FactorsTest, EmptySumsAreZero) {
  std::vector<double> p(4, 1), q(6, 1), none;
  multiply(as_buffer(p), as_buffer(none), as_buffer(none), 2);
  multiply_transposed(as_buffer(q), as_buffer(none), as_buffer(none), 2);
  orthonormalize(as_buffer(none), 2);
  EXPECT_EQ(p, std::vector<double>(4));
  EXPECT_EQ(q, std::vector<double>(6));
}

TEST(FactorsTest, RefusesShapesAndTypesThatDoNotFit) {
  std::vector<float> m(12), p(6), q(8);
  std::vector<double> wide(8);
  std::vector<std::int32_t> whole(8);
  const auto refuses = [](const auto& call, const char* text) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  multiply(as_buffer(p), as_buffer(m), as_buffer(q), 2);
  refuses([&] { multiply(as_buffer(p), as_buffer(q), as_buffer(q), 2); },
          "multiply: 8 elements cannot be the product of factors of 6 and 8 elements with rank 2");
  refuses([&] { multiply_transposed(as_buffer(q), as_buffer(m), as_buffer(p), 4); },
          "multiply_transposed: 12 elements cannot be the product");
  refuses([&] { multiply_factors(as_buffer(m), as_buffer(p), as_buffer(q), 0); }, "with rank 0");
  refuses([&] { multiply(as_buffer(p), as_buffer(m), as_buffer(wide), 2); },
          "not float32, float32 and float64");
  refuses([&] { orthonormalize(as_buffer(q), 3); }, "orthonormalize: 8 elements are not a factor of rank 3");
  refuses([&] { orthonormalize(as_buffer(whole), 2); }, "factors are float32 or float64, not int32");
}

}  // namespace
}  // namespace starling::kernel

#include "starling/kernel/matrices.h"

#include <gtest/gtest.h>

#include "twins.h"

namespace starling::kernel::cuda {
namespace {

// Odd shapes: within one block and several, of one row or column, more columns than one piece of a sum and
// more slabs of rows than eight; ranks below, at and above those of one launch, and above the rows.
const FactorShape kShapes[] = {{1, 1, 1},    {1, 300, 2}, {300, 1, 3},   {5, 7, 8},
                               {131, 67, 1}, {9, 515, 3}, {37, 64, 17},  {3, 12, 4},
                               {3, 9001, 2}, {64, 33, 8}, {2500, 30, 2}, {1, 4096, 8}};

template <typename T, typename Make>
void check_products(const Make& make) {
  std::uint64_t seed = 0;
  for (const FactorShape& shape : kShapes)
    for (const std::size_t offset : {0U, 1U}) {
      const auto& [rows, columns, rank] = shape;
      Twin<T> m(make(rows * columns, ++seed), offset), p(make(rows * rank, ++seed), offset),
          q(make(columns * rank, ++seed), offset);
      Twin<T> m1(make(rows * columns, ++seed), offset), p1(make(rows * rank, ++seed), offset),
          q1(make(columns * rank, ++seed), offset);
      on_host().multiply(p1.host(), m.host(), q.host(), rank);
      on_gpu().multiply(p1.device(), m.device(), q.device(), rank);
      on_host().multiply_transposed(q1.host(), m.host(), p.host(), rank);
      on_gpu().multiply_transposed(q1.device(), m.device(), p.device(), rank);
      on_host().multiply_factors(m1.host(), p.host(), q.host(), rank);
      on_gpu().multiply_factors(m1.device(), p.device(), q.device(), rank);
      on_host().orthonormalize(p.host(), rank);
      on_gpu().orthonormalize(p.device(), rank);
      finish();
      ASSERT_TRUE(p1.same()) << "M Q, " << rows << " x " << columns << ", rank " << rank;
      ASSERT_TRUE(q1.same()) << "M^T P, " << rows << " x " << columns << ", rank " << rank;
      ASSERT_TRUE(m1.same()) << "P Q^T, " << rows << " x " << columns << ", rank " << rank;
      ASSERT_TRUE(p.same()) << "orthonormalize, " << rows << " x " << rank;
    }
}

TEST(CudaMatricesTest, MultipliesAsTheHost) {
  check_products<float>(small_numbers<float>);
  check_products<double>(small_numbers<double>);
}

TEST(CudaMatricesTest, MultipliesOddNumbersAsTheHost) {
  check_products<float>(odd_numbers<float>);
  check_products<double>(odd_numbers<double>);
}

TEST(CudaMatricesTest, ColumnsOfZerosStayZero) {
  Twin<float> p({3, 4, 0, 0, 8, 6}, 0);
  on_host().orthonormalize(p.host(), 3);
  on_gpu().orthonormalize(p.device(), 3);
  finish();
  EXPECT_TRUE(p.same());
}

TEST(CudaMatricesTest, EmptySumsAreZero) {
  const Buffer none(DType::float32, nullptr, 0, MemoryKind::cuda, nullptr);
  Twin<float> p(small_numbers<float>(4, 1), 0), q(small_numbers<float>(6, 1), 0);
  on_gpu().multiply(p.device(), none, none, 2);
  on_gpu().multiply_transposed(q.device(), none, none, 2);
  on_gpu().multiply_factors(none, p.device().part(0, 0), q.device(), 2);
  on_gpu().orthonormalize(none, 2);
  on_host().zero(p.host());
  on_host().zero(q.host());
  finish();
  EXPECT_TRUE(p.same());
  EXPECT_TRUE(q.same());
}

}  // namespace
}  // namespace starling::kernel::cuda

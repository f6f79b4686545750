#include <gtest/gtest.h>
#include <limits>
#include <span>

#include "cuda_test.h"
#include "starling/kernel/cuda/shape.h"

// Blocks that are too large for a GPU's cache have separate kernels; see Access in shape.h.

namespace starling::kernel::cuda {
namespace {

constexpr std::size_t kManyBytes = std::size_t{32} << 20;

/// `number` vectors that are large together, with the same values on the host and on the device.
template <typename T>
std::vector<Twin<T>> large_twins(std::size_t number, std::size_t bytes = kManyBytes) {
  const std::size_t count = bytes / number / sizeof(T) + 5;
  std::vector<Twin<T>> twins;
  for (std::size_t i = 0; i < number; ++i) {
    const std::vector<T> tile = odd_numbers<T>(4099, i);
    std::vector<T> values(count);
    for (std::size_t k = 0; k < count; ++k) values[k] = tile[k % tile.size()];
    twins.emplace_back(values, 3);
  }
  return twins;
}

/// Runs `body(arithmetic, buffer)` on the host and on the device, where buffer(i) is one of the vectors, and
/// compares all of them.
template <typename T, typename Body>
void check(std::vector<Twin<T>>& x, const Body& body) {
  body(arithmetic_in(MemoryKind::host), [&](std::size_t i) { return x[i].host(); });
  body(test_gpu().arithmetic(), [&](std::size_t i) { return x[i].device(); });
  test_gpu().synchronize();
  for (Twin<T>& one : x) ASSERT_TRUE(one.same());
}

template <typename Buffers>
std::vector<Term> average_of(std::size_t n, const Buffers& buffer) {
  std::vector<Term> terms;
  for (std::size_t i = 0; i < n; ++i) terms.emplace_back(ConstBuffer(buffer(i)), 1 / static_cast<double>(n));
  return terms;
}

class LargeBlocksTest : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Terms, LargeBlocksTest, testing::Values(1, 2, 3, 4, 6, 9));

template <typename T>
void check_sums(std::size_t n) {
  auto x = large_twins<T>(n + 1);
  check(x, [&](const Arithmetic& arithmetic, const auto& buffer) {
    arithmetic.combine(buffer(n), average_of(n, buffer));
  });
}

TEST_P(LargeBlocksTest, Combine) {
  check_sums<float>(GetParam());
  check_sums<double>(GetParam());
  check_sums<Half>(GetParam());
  check_sums<BFloat16>(GetParam());
}

// Combines n messages, one of them the rank's own.
template <typename Message>
void check_around(std::size_t n) {
  using T = std::conditional_t<std::is_same_v<Message, double>, double, float>;
  auto messages = large_twins<Message>(n);
  const std::size_t count = messages[0].host().count;
  Twin<T> x(odd_numbers<T>(count, 7), 3);
  for (const bool on_device : {false, true}) {
    const auto buffer = [&](std::size_t i) { return on_device ? messages[i].device() : messages[i].host(); };
    const std::vector<Term> terms = average_of(n, buffer);
    const Arithmetic& arithmetic = on_device ? test_gpu().arithmetic() : arithmetic_in(MemoryKind::host);
    const Buffer out = on_device ? x.device() : x.host();
    arithmetic.combine_around(dtype_of<Message>, out, out, terms[0], std::span(terms).subspan(1));
  }
  test_gpu().synchronize();
  ASSERT_TRUE(x.same());
}

TEST_P(LargeBlocksTest, CombineAround) {
  check_around<float>(GetParam());
  check_around<double>(GetParam());
  check_around<Half>(GetParam());
  check_around<BFloat16>(GetParam());
}

template <typename T>
void check_updates(std::size_t n) {
  auto x = large_twins<T>(n + 5);  // the terms (x is the first one), gradient, m, v, sum, copy
  check(x, [&](const Arithmetic& arithmetic, const auto& buffer) {
    const std::vector<Term> terms = average_of(n, buffer);
    const UpdatePass pass{terms, buffer(n), 0.5, buffer(0), buffer(n + 4)};
    arithmetic.sgd_update(pass, {.momentum = 0.9, .weight_decay = 0.1}, buffer(n + 1), false);
    arithmetic.adam_update(pass, {.weight_decay = 0.1}, buffer(n + 1), buffer(n + 2), 3);
    arithmetic.accum_adam_update(pass, {}, buffer(n + 1), buffer(n + 2), buffer(n + 3), 3, 2, true);
  });
}

TEST_P(LargeBlocksTest, Updates) {
  check_updates<float>(GetParam());
  check_updates<double>(GetParam());
}

template <typename T>
void check_maps() {
  auto x = large_twins<T>(2);
  check(x, [](const Arithmetic& arithmetic, const auto& buffer) {
    arithmetic.reduce(Reduction::sum, buffer(0), buffer(1));
    arithmetic.swap(buffer(0), buffer(1));
    if constexpr (is_floating_element<T>) arithmetic.divide(buffer(0), 3);
  });
}

TEST(LargeBlocksMapTest, MapsElements) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::uint8); ++dtype)
    dispatch(static_cast<DType>(dtype), []<typename T>(std::type_identity<T>) { check_maps<T>(); });
}

TEST(LargeBlocksMapTest, DividesOneBlock) {
  auto x = large_twins<Half>(1);
  check(x, [](const Arithmetic& arithmetic, const auto& buffer) { arithmetic.divide(buffer(0), 3); });
}

template <typename From, typename To>
void check_convert() {
  auto from = large_twins<From>(1);
  Twin<To> to(std::vector<To>(from[0].host().count), 3);
  arithmetic_in(MemoryKind::host).copy(to.host(), from[0].host());
  test_gpu().arithmetic().copy(to.device(), from[0].device());
  test_gpu().synchronize();
  ASSERT_TRUE(to.same());
}

TEST(LargeBlocksMapTest, Converts) {
  check_convert<float, Half>();
  check_convert<Half, float>();
  check_convert<float, BFloat16>();
  check_convert<BFloat16, float>();
  check_convert<float, double>();
  check_convert<double, float>();
}

template <typename T>
void check_moments() {
  auto x = large_twins<T>(4);
  check(x, [](const Arithmetic& arithmetic, const auto& buffer) {
    arithmetic.moments({.weight_decay = 0.1}, buffer(0), buffer(1), buffer(2), buffer(3));
  });
  x = large_twins<T>(3);
  check(x, [](const Arithmetic& arithmetic, const auto& buffer) {
    arithmetic.moment_step({.weight_decay = 0.1}, buffer(0), buffer(1), buffer(2));
  });
}

TEST(LargeBlocksMapTest, Moments) {
  check_moments<float>();
  check_moments<double>();
}

template <typename T>
void check_measures() {
  DeviceVector<T> values(kManyBytes / sizeof(T) + 5, static_cast<T>(0.3F));
  const Buffer block(dtype_of<T>, values.data(), values.size(), MemoryKind::cuda, nullptr);
  const Arithmetic& gpu = test_gpu().arithmetic();
  EXPECT_TRUE(gpu.all_finite(block));
  if constexpr (sizeof(T) > 2) {
    EXPECT_EQ(gpu.sum_of_squares(block), sum_of_squares(dtype_of<T>, values.data(), values.size()));
  }
  values.back() = static_cast<T>(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(gpu.all_finite(block));
}

TEST(LargeBlocksMapTest, Measures) {
  check_measures<float>();
  check_measures<double>();
  check_measures<Half>();
}

// Chunks whose sums depend on the order: 2 + 2^-52 is 2, but 2^-52 + 2^-52 counts.
TEST(LargeBlocksMapTest, SumsSquaresOfAThousandChunks) {
  constexpr std::size_t kChunk = 16384;
  DeviceVector<float> values(kChunk * 1000 + 3);
  values[5 * kChunk] = values[5 * kChunk + 1] = 1;
  values[(5 + 256) * kChunk] = values[(5 + 768) * kChunk] = 0x1p-26F;
  const Buffer block(DType::float32, values.data(), values.size(), MemoryKind::cuda, nullptr);
  EXPECT_EQ(test_gpu().arithmetic().sum_of_squares(block), 2 + 0x1p-51);
  EXPECT_EQ(sum_of_squares(DType::float32, values.data(), values.size()), 2 + 0x1p-51);
}

}  // namespace
}  // namespace starling::kernel::cuda

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "blocks.h"

// Tests the codecs that send a few elements or a few vectors.

namespace starling::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Reference that sorts by descending |x|, then by index; NaN sorts above all numbers.
std::vector<float> top_k_reference(const std::vector<float>& values, std::size_t k) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::size_t i) {
    return std::isnan(values[i]) ? 2e300 : std::min(1e300, std::fabs(double{values[i]}));
  };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return size(a) > size(b); });
  std::vector<float> out(values.size());
  for (std::size_t j = 0; j < k; ++j) out[order[j]] = values[order[j]];
  return out;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

TEST(TopKCodec, MatchesSortingWhateverTheValues) {
  std::vector<std::vector<float>> all;
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 100U, 1000U, 4097U, 20000U})
    all.push_back(normal_numbers<float>(count, count));
  all.emplace_back(5000, 1.5F);                          // all equal
  all.emplace_back(5000, 0.0F);                          // nothing but zeros
  all.push_back(normal_numbers<float>(5000, 1, 1e-42));  // subnormal
  for (float& value : all.emplace_back(normal_numbers<float>(5000, 2)))
    value = std::round(value * 2);  // many ties, of both signs
  for (float& value : all.emplace_back(normal_numbers<float>(5000, 3)))
    value = 1 + 0x1p-20F * std::round(value);  // equal but for the last bits
  all.emplace_back(normal_numbers<float>(5000, 4));
  all.back()[10] = kNaN, all.back()[4000] = -kInfinity, all.back()[77] = kInfinity;
  for (const auto& values : all)
    for (const double fraction : {1e-9, 0.001, 0.01, 0.1, 0.5, 0.999, 1.0}) {
      const auto exact = fraction * static_cast<double>(values.size());
      const auto k = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(exact - 1e-6)));
      const std::string spec =
          "top-k(fraction=" + std::to_string(fraction == 1e-9 ? 0.0000011 : fraction) + ")";
      const CodecPtr codec = make_codec(spec);
      Message message = encoded(*codec, values);
      ASSERT_EQ(message.copy().size(), 8 * k) << spec << " of " << values.size();
      EXPECT_TRUE(message.guards_stand());
      const auto back = decoded<float>(*codec, message, values.size());
      EXPECT_EQ(bits_of(back), bits_of(top_k_reference(values, k))) << spec << " of " << values.size();
    }
}

TEST(TopKCodec, SendsExactlyKDistinctIndicesInAscendingOrder) {
  const CodecPtr codec = make_codec("top-k(fraction=0.07)");
  Message message = encoded(*codec, std::vector<float>(100, 2.0F));
  const auto* indices = reinterpret_cast<const std::uint32_t*>(message.data());
  ASSERT_EQ(message.copy().size(), 7U * 8);  // not 8 entries, although 0.07 * 100 is above 7 in float64
  for (std::uint32_t j = 0; j < 7; ++j) EXPECT_EQ(indices[j], j);  // ties go to the lower index
}

TEST(TopKCodec, RefusesAMessageThatPointsOutside) {
  const CodecPtr codec = make_codec("top-k");
  const std::uint32_t message[2] = {100, 0};
  std::vector<float> out(100);
  const ConstBuffer bytes(DType::uint8, message, sizeof(message));
  EXPECT_THAT([&] { codec->decode(bytes, 0, values_of(out)); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("element 100 of 100")));
  EXPECT_THROW(codec->decode_add(bytes, 0, 1, values_of(out)), InvalidArgument);
}

TEST(SparseCodecs, RefuseMoreElementsThanTheyCanName) {
  EXPECT_THROW(make_codec("top-k")->encoded_bytes(DType::float32, {std::size_t{1} << 32, 0}),
               InvalidArgument);
  EXPECT_THROW(make_codec("random-k")->encoded_bytes(DType::float32, {std::size_t{1} << 31, 0}),
               InvalidArgument);
}

TEST(RandomKCodec, KeepsKElementsAsTheyAreAndChoosesThemByTheKey) {
  const std::vector<float> values(1000, 3.0F);
  std::vector<int> chosen(1000);
  std::set<std::vector<float>> different;
  constexpr int kDraws = 2000;
  for (int draw = 0; draw < kDraws; ++draw) {
    const std::vector<float> back = passed("random-k(fraction=0.05)", values, {9, 8, draw});
    EXPECT_EQ(std::count(back.begin(), back.end(), 3.0F), 50);  // distinct indices
    EXPECT_EQ(std::count(back.begin(), back.end(), 0.0F), 950);
    for (std::size_t i = 0; i < 1000; ++i) chosen[i] += back[i] != 0 ? 1 : 0;
    different.insert(back);
  }
  EXPECT_EQ(different.size(), std::size_t{kDraws});
  // 2000 draws of 5 %: expects 100 each, with a standard deviation of 9.75.
  for (const int times : chosen) EXPECT_NEAR(times, 100, 55);
}

TEST(RandomKCodec, IsUnbiasedOnRequestOnly) {
  const std::vector<float> values = normal_numbers<float>(100, 1);
  const std::vector<float> plain = passed("random-k(fraction=0.25)", values, {1, 1, 1});
  const std::vector<float> scaled = passed("random-k(fraction=0.25, unbiased=true)", values, {1, 1, 1});
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(plain[i] == 0 || plain[i] == values[i]);
    EXPECT_EQ(scaled[i], 4 * plain[i]);
  }
}

// Returns M = A B^T of the given rank, in row-major order.
std::vector<float> low_rank(std::size_t rows, std::size_t columns, std::size_t rank) {
  const auto a = normal_numbers<double>(rows * rank, 1), b = normal_numbers<double>(columns * rank, 2);
  std::vector<float> m(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t r = 0; r < rank; ++r) sum += a[i * rank + r] * b[j * rank + r];
      m[i * columns + j] = static_cast<float>(sum);
    }
  return m;
}

double relative_error(const std::vector<float>& left, const std::vector<float>& right) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    error += std::pow(double{left[i]} - double{right[i]}, 2);
    size += std::pow(double{left[i]}, 2);
  }
  return std::sqrt(error / size);
}

TEST(PowerSgdCodec, IsExactForMatricesOfItsRank) {
  for (const std::size_t rank : {1U, 2U, 4U}) {
    const std::string spec = "powersgd(rank=" + std::to_string(rank) + ")";
    for (const auto& [rows, columns] : {std::pair{40U, 60U}, {7U, 300U}, {300U, 20U}, {100U, 4099U}}) {
      const std::vector<float> m = low_rank(rows, columns, rank);
      EXPECT_LT(relative_error(m, passed(spec, m, {1, 2, 3}, rows)), 1e-5) << spec << ' ' << rows;
      // The matrix has a lower rank than allowed: the unused vectors are zero, not noise.
      EXPECT_LT(relative_error(m, passed("powersgd(rank=5)", m, {1, 2, 3}, rows)), 1e-5)
          << spec << ' ' << rows;
    }
  }
}

// Compares with the projection onto P's columns in float64: the message decodes to P P^T M with orthonormal
// P.
TEST(PowerSgdCodec, ProjectsOntoOrthonormalColumns) {
  for (const std::size_t count : {1000U, 997U, 5001U}) {  // nearly square, with an incomplete last row
    const std::vector<float> m = normal_numbers<float>(count, count);
    const auto rows = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
    const std::size_t columns = (count + rows - 1) / rows;
    const CodecPtr codec = make_codec("powersgd(rank=3)");
    Message message = encoded(*codec, m, {1, 2, 3});
    const auto* p = reinterpret_cast<const float*>(message.data());
    const auto at = [&](std::size_t i, std::size_t r) { return static_cast<double>(p[r * rows + i]); };
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t s = 0; s < 3; ++s) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) sum += at(i, r) * at(i, s);
        EXPECT_NEAR(sum, r == s ? 1 : 0, 1e-6);
      }
    std::vector<float> expected(count);
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t r = 0; r < 3; ++r) {
        double along = 0;
        for (std::size_t i = 0; i < rows && i * columns + j < count; ++i)
          along += at(i, r) * static_cast<double>(m[i * columns + j]);
        for (std::size_t i = 0; i < rows && i * columns + j < count; ++i)
          expected[i * columns + j] += static_cast<float>(along * at(i, r));
      }
    EXPECT_LT(relative_error(expected, decoded<float>(*codec, message, count)), 1e-5) << count;
    EXPECT_LT(relative_error(m, expected), 0.99);
  }
}

TEST(PowerSgdCodec, SmallParametersAreSentUnchanged) {
  for (const std::size_t count : {1U, 7U, 16U}) {
    const std::vector<float> values = normal_numbers<float>(count, 1);
    EXPECT_EQ(passed("powersgd(rank=2)", values), values);
  }
  EXPECT_NE(passed("powersgd(rank=1)", normal_numbers<float>(16, 1)),
            normal_numbers<float>(16, 1));  // 8 < 16
}

}  // namespace
}  // namespace starling::codec

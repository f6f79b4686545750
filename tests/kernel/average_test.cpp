#include "starling/kernel/average.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>

#include "blocks.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/int8.h"
#include "starling/kernel/update.h"

// Properties of averages in every kernel: equal values are returned bit for bit, and the mean over the ranks
// is kept.

namespace starling::kernel {
namespace {

class AverageTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(AverageTest);

/// All finite values of a 2-byte type; for other types many values of all magnitudes and both zeros.
template <typename T>
std::vector<T> finite_values() {
  std::vector<T> values;
  if constexpr (sizeof(T) == 2) {
    for (unsigned bits = 0; bits < 0x10000U; ++bits) {
      T value;
      value.bits = static_cast<std::uint16_t>(bits);
      if (std::isfinite(static_cast<float>(value))) values.push_back(value);
    }
  } else {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    Random random(17, sizeof(T), 0);
    values = {T(0), -T(0), std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max()};
    while (values.size() < 20'000)
      if (const T value = std::bit_cast<T>(static_cast<Bits>(random.next())); std::isfinite(value))
        values.push_back(value);
  }
  return values;
}

template <typename Body>
void for_floating_elements(const Body& body) {
  body(std::type_identity<double>{});
  body(std::type_identity<float>{});
  body(std::type_identity<Half>{});
  body(std::type_identity<BFloat16>{});
}

/// Equal weights, weights of every size that sum to one, and some with zeros among them.
std::vector<std::vector<double>> weights_of_averages(std::size_t n) {
  std::vector<std::vector<double>> all = {std::vector<double>(n, 1.0 / static_cast<double>(n))};
  Random random(n, 3, 1);
  for (int k = 0; k < 4; ++k) {
    std::vector<double> weights(n);
    double rest = 1;
    for (std::size_t t = 1; t < n; ++t) {
      weights[t] = k == 3 && t % 2 == 0 ? 0 : rest * random.uniform();
      rest -= weights[t];
    }
    weights[0] = rest;
    if (k == 2) std::swap(weights[0], weights[n - 1]);
    all.push_back(weights);
  }
  all.emplace_back(n, 0.0);
  all.back().back() = 1;
  return all;
}

std::vector<Term> terms_of(const std::vector<double>& weights, const void* data) {
  std::vector<Term> terms;
  for (const double weight : weights) terms.push_back({data, weight});
  return terms;
}

TEST_P(AverageTest, EqualValuesComeBackBitForBit) {
  for_floating_elements([]<typename T>(std::type_identity<T>) {
    const std::vector<T> values = finite_values<T>();
    for (std::size_t n = 2; n <= 8; ++n)
      for (const auto& weights : weights_of_averages(n)) {
        std::vector<T> out(values.size());
        combine(dtype_of<T>, out.data(), terms_of(weights, values.data()), values.size());
        ASSERT_TRUE(same_blocks(out, values)) << name(dtype_of<T>) << ", " << n << " terms";
      }
  });
}

template <typename T>
ConstBuffer read(const std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}
template <typename T>
Buffer written(std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}

template <typename T>
void check_equal_updates() {
  const std::vector<T> values = finite_values<T>();
  const std::vector<T> gradient(values.size(), T(0));
  for (std::size_t n = 2; n <= 6; ++n)
    for (const auto& weights : weights_of_averages(n)) {
      const auto terms = terms_of(weights, values.data());
      std::vector<T> x(values.size());
      sgd_update({terms, read(gradient), 1, written(x)}, {}, {}, false);
      ASSERT_TRUE(same_blocks(x, values)) << "sgd, " << n << " terms";
      std::vector<T> m(x.size()), v(x.size());
      adam_update({terms, read(gradient), 1, written(x)}, {}, written(m), written(v), 1);
      ASSERT_TRUE(same_blocks(x, values)) << "adam, " << n << " terms";
    }
}

TEST_P(AverageTest, FusedUpdatesStartFromEqualValuesBitForBit) {
  check_equal_updates<float>();
  check_equal_updates<double>();
}

// The fused update and combine() give the same bits.
TEST_P(AverageTest, FusedUpdatesAverageAsCombineDoes) {
  constexpr std::size_t kCount = 777;
  for (std::size_t n = 2; n <= 6; ++n)
    for (const auto& weights : weights_of_averages(n)) {
      std::vector<std::vector<float>> blocks;
      std::vector<Term> terms;
      Random random(n, 9, 9);
      for (std::size_t t = 0; t < n; ++t) {
        blocks.emplace_back(kCount);
        for (float& value : blocks.back()) value = static_cast<float>(random.uniform() - 0.5);
      }
      for (std::size_t t = 0; t < n; ++t) terms.push_back({blocks[t].data(), weights[t]});
      const std::vector<float> gradient(kCount, 0.0F);
      std::vector<float> updated(kCount), combined(kCount);
      sgd_update({terms, read(gradient), 1, written(updated)}, {}, {}, false);
      combine(DType::float32, combined.data(), terms, kCount);
      ASSERT_TRUE(same_blocks(updated, combined)) << n;
    }
}

// x and all messages are equal; the messages are x, rounded.
TEST_P(AverageTest, EqualMessagesLeaveTheValuesBitForBit) {
  const std::vector<float> x = finite_values<float>();
  for (std::size_t n = 1; n <= 5; ++n) {
    const double weight = 1.0 / static_cast<double>(n + 1);
    std::vector<float> out(x.size());
    for (const DType message : {DType::float16, DType::bfloat16, DType::float32}) {
      std::vector<float> moderate = x;
      if (message == DType::float16)
        for (float& value : moderate) value = std::abs(value) < 6e4F ? value : 1.0F;
      if (message == DType::bfloat16)
        for (float& value : moderate) value = std::abs(value) < 3e38F ? value : 1.0F;
      std::vector<float> told(x.size());
      convert(DType::float32, moderate.data(), message, told.data(), x.size());
      combine_around(message, out.data(), moderate.data(), told.data(),
                     terms_of(std::vector<double>(n, weight), told.data()), x.size());
      ASSERT_TRUE(same_blocks(out, moderate)) << name(message) << ", " << n << " neighbors";
    }
    std::vector<float> small(1000);
    for (std::size_t i = 0; i < small.size(); ++i)
      small[i] = i % 7 == 0 ? -0.0F : std::sin(static_cast<float>(i));
    std::vector<std::int8_t> codes(small.size());
    const Int8Run run{codes.data(), quantize_int8(small.data(), small.size(), codes.data())};
    std::vector<float> kept(small.size());
    combine_around_int8(kept.data(), small.data(), run, std::vector<Int8Term>(n, {run, weight}),
                        small.size());
    ASSERT_TRUE(same_blocks(kept, small)) << "int8, " << n << " neighbors";
  }
}

TEST_P(AverageTest, MeansOfWholeNumbersAreExact) {
  for_floating_elements([]<typename T>(std::type_identity<T>) {
    for (int n = 2; n <= 17; ++n) {
      std::vector<std::vector<T>> blocks;
      std::vector<Term> terms;
      for (int t = 0; t < n; ++t) blocks.emplace_back(40, T(static_cast<float>(2 * t)));
      for (const auto& block : blocks) terms.push_back({block.data(), 1.0 / n});
      std::vector<T> out(40);
      for (int k = 0; k < n; ++k) {
        combine(dtype_of<T>, out.data(), terms, out.size());
        for (const T value : out) ASSERT_EQ(static_cast<double>(value), n - 1.0) << n;
        std::rotate(terms.begin(), terms.begin() + 1, terms.end());
      }
    }
  });
}

/// Ranks on a ring average with their neighbors and apply updates that sum to zero; returns the largest
/// relative change of a mean. The weights are the given ones for a rank itself; its neighbors share the rest
/// equally.
template <typename T>
double drift(double own, int steps) {
  constexpr std::size_t kRanks = 6;
  constexpr std::size_t kCount = 16;
  std::vector<std::vector<T>> x(kRanks, std::vector<T>(kCount)), next = x, updates = x;
  Random random(23, 1, 1);
  for (auto& block : x)
    for (T& value : block) value = static_cast<T>(1.5 + 0.4 * random.uniform());
  const auto mean = [&](std::size_t i) {
    long double sum = 0;
    for (const auto& block : x) sum += block[i];
    return static_cast<double>(sum / kRanks);
  };
  std::vector<double> before(kCount);
  for (std::size_t i = 0; i < kCount; ++i) before[i] = mean(i);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i)
      for (std::size_t pair = 0; pair < kRanks; pair += 2) {
        updates[pair][i] = static_cast<T>(1e-3 * (random.uniform() - 0.5));
        updates[pair + 1][i] = -updates[pair][i];
      }
    for (std::size_t r = 0; r < kRanks; ++r) {
      const Term terms[] = {{x[r].data(), own},
                            {x[(r + 1) % kRanks].data(), (1 - own) / 2},
                            {x[(r + kRanks - 1) % kRanks].data(), (1 - own) / 2}};
      sgd_update({terms, read(updates[r]), 1, written(next[r])},
                 {.lr = 1, .momentum = 0, .dampening = 0, .weight_decay = 0, .nesterov = false}, {}, false);
    }
    x.swap(next);
  }
  double most = 0;
  for (std::size_t i = 0; i < kCount; ++i) most = std::max(most, std::abs(mean(i) / before[i] - 1));
  return most;
}

// Rounding to nearest moves a mean by a random walk of about half a unit times sqrt(steps / ranks). Products
// with a rounded 1/3 moved it by half a unit in every step, a hundred times as far.
TEST_P(AverageTest, TheMeanOfTheRanksStaysOverManySteps) {
  constexpr int kSteps = 20'000;
  const double walk = std::sqrt(kSteps);
  for (const double own : {1.0 / 3, 0.4, 0.7}) {
    EXPECT_LT(drift<float>(own, kSteps), walk * 0x1p-24) << own;
    EXPECT_LT(drift<double>(own, kSteps), walk * 0x1p-53) << own;
  }
}

TEST_P(AverageTest, DivisionIsExactWhereAProductIsNot) {
  for_floating_elements([]<typename T>(std::type_identity<T>) {
    for (const float number : {3.0F, 7.0F, 41.0F}) {
      std::vector<T> block(37);
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = T(number * static_cast<float>(i % 6));
      divide(dtype_of<T>, block.data(), number, block.size());
      for (std::size_t i = 0; i < block.size(); ++i)
        ASSERT_EQ(static_cast<double>(block[i]), static_cast<double>(i % 6));
    }
  });
  std::int32_t integer = 3;
  EXPECT_THROW(divide(DType::int32, &integer, 3, 1), InvalidArgument);
}

// A term with weight 0 does not affect the result, however large it is.
TEST_P(AverageTest, TermsWithoutWeightLeaveNoTrace) {
  const std::vector<float> huge(50, 1e20F);
  const std::vector<float> small(50, 0.1F);
  const Term terms[] = {{huge.data(), 0}, {small.data(), 1}};
  std::vector<float> out(50);
  combine(DType::float32, out.data(), terms, out.size());
  EXPECT_TRUE(same_blocks(out, small));
}

}  // namespace
}  // namespace starling::kernel

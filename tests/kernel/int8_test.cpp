#include "starling/kernel/int8.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "blocks.h"

namespace starling::kernel {
namespace {

class Int8Test : public EveryTarget {};
STARLING_ON_EVERY_TARGET(Int8Test);

std::vector<float> spread(std::size_t count, std::uint64_t seed, double middle, double width) {
  Random random(seed, 0, 0);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(middle + width * (random.uniform() - 0.5));
  return values;
}

// Decodes a code, with every operation rounded to float32.
float value_of(std::int8_t code, Int8Grid grid) {
  volatile float product = static_cast<float>(code) * grid.step;
  return product + grid.middle;
}

struct Told {
  explicit Told(const std::vector<float>& values) : codes(values.size()) {
    grid = quantize_int8(values.data(), values.size(), codes.data());
  }
  Int8Run run() const { return {codes.data(), grid}; }
  float operator[](std::size_t i) const { return value_of(codes[i], grid); }

  std::vector<std::int8_t> codes;
  Int8Grid grid{};
};

TEST_P(Int8Test, ErrsByHalfAStepAtMostAndReachesBothEnds) {
  for (const auto& [middle, width] :
       {std::pair{0.0, 2.0}, {1.0, 0.01}, {-300.0, 1.0}, {0.0, 1e-30}, {5.0, 5e5}})
    for (const std::size_t count : {2U, 3U, 15U, 16U, 17U, 64U, 65U, 511U, 512U, 1003U}) {
      Placed<float> values(spread(count, count, middle, width), count % 7);
      Placed<std::int8_t> codes(count, count % 5);
      const Int8Grid grid = quantize_int8(values.data(), count, codes.data());
      ASSERT_TRUE(codes.guards_stand());
      const auto found = codes.values();
      const auto least = *std::min_element(found.begin(), found.end());
      const auto greatest = *std::max_element(found.begin(), found.end());
      EXPECT_EQ(least, -127) << middle << " " << count;
      EXPECT_EQ(greatest, 127) << middle << " " << count;
      for (std::size_t i = 0; i < count; ++i) {
        const double off = std::fabs(double{value_of(found[i], grid)} - double{values.data()[i]});
        const double rounding = std::fabs(middle) * 1.2e-7;
        ASSERT_LE(off, 0.5001 * double{grid.step} + rounding) << middle << " " << count << " " << i;
      }
    }
}

TEST_P(Int8Test, EqualValuesComeBackAsTheyAre) {
  for (const float value : {0.0F, 1.0F, -3.7e-12F, 1e-45F, 3e38F, -3e38F})
    for (const std::size_t count : {1U, 17U, 100U}) {
      const Told told(std::vector<float>(count, value));
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(told[i], value);
    }
}

// Between two neighboring numbers, the middle is rounded; still no code may wrap around.
TEST_P(Int8Test, RunsOfNearlyEqualOrOfHugeValues) {
  for (const float value : {1.0F, 1e-20F, 7e5F, 1e30F}) {
    const float next = std::nextafter(value, 2 * value);
    const std::vector<float> values = {value, next, next, value, value};
    const Told told(values);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::fabs(told[i] - values[i]), next - value) << value << " " << i;
  }
  const std::vector<float> huge = {-3e38F, 1e38F, 3e38F, 0};
  const Told told(huge);
  for (std::size_t i = 0; i < huge.size(); ++i) EXPECT_NEAR(told[i] / 1e38F, huge[i] / 1e38F, 0.02);
}

TEST_P(Int8Test, ANaNMakesItsRunNaN) {
  for (const float strange : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()})
    for (const std::size_t at : {0U, 40U, 69U}) {
      std::vector<float> values = spread(70, 1, 0, 1);
      values[at] = strange;
      const Told told(values);
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(std::isnan(told[i]));
      EXPECT_EQ(told.codes, std::vector<std::int8_t>(70, 0));
    }
}

TEST_P(Int8Test, CodesAreTheSameOnEveryInstructionSet) {
  const std::vector<float> values = spread(1003, 5, 0.1, 3);
  const Told here(values);
  use_target(Target::baseline);
  const Told there(values);
  EXPECT_EQ(here.codes, there.codes);
  EXPECT_EQ(here.grid.middle, there.grid.middle);
  EXPECT_EQ(here.grid.step, there.grid.step);
}

TEST_P(Int8Test, AverageMatchesTheReferenceBitForBit) {
  for (std::size_t terms = 0; terms <= 6; ++terms)
    for (const std::size_t count : {1U, 7U, 16U, 33U, 70U, 512U}) {
      const std::vector<float> x = spread(count, 1, 0, 2);
      const Told own(x);
      std::vector<Told> others;
      for (std::size_t t = 0; t < terms; ++t) others.emplace_back(spread(count, 2 + t, 0.1, 1.5));
      std::vector<Int8Term> list;
      for (std::size_t t = 0; t < terms; ++t)
        list.push_back({others[t].run(), 0.3 / static_cast<double>(t + 1)});
      std::vector<float> expected(x), alone(count);
      for (std::size_t i = 0; i < count && terms > 0; ++i) {
        volatile float sum = 0;
        for (std::size_t t = 0; t < terms; ++t) {
          volatile float difference = others[t][i] - own[i];
          volatile float product = static_cast<float>(list[t].weight) * difference;
          sum = t == 0 ? product : sum + product;
        }
        expected[i] = x[i] + sum;
        alone[i] = sum;
      }
      Placed<float> out(count, terms);
      combine_around_int8(out.data(), x.data(), own.run(), list, count);
      ASSERT_TRUE(same_blocks(out.values(), expected)) << terms;
      ASSERT_TRUE(out.guards_stand());
      Placed<float> in_place(x, 3);
      combine_around_int8(in_place.data(), in_place.data(), own.run(), list, count);
      ASSERT_TRUE(same_blocks(in_place.values(), expected)) << terms;
      combine_around_int8(out.data(), nullptr, own.run(), list, count);
      ASSERT_TRUE(same_blocks(out.values(), alone)) << terms;
    }
}

// A ring of 8 ranks with weights 1/3 mixes 300 times.
TEST_P(Int8Test, KeepsTheMeanOfTheFlock) {
  constexpr std::size_t kRanks = 8, kCount = 257;
  std::vector<std::vector<float>> x;
  for (std::size_t rank = 0; rank < kRanks; ++rank) x.push_back(spread(kCount, 10 + rank, 1.5, 1));
  const auto mean = [&](std::size_t i) {
    return std::accumulate(x.begin(), x.end(), 0.0,
                           [&](double sum, const auto& one) { return sum + one[i]; }) /
           kRanks;
  };
  std::vector<double> before(kCount);
  for (std::size_t i = 0; i < kCount; ++i) before[i] = mean(i);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Told> told(x.begin(), x.end());
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Int8Term terms[] = {{told[(rank + 1) % kRanks].run(), 1.0 / 3},
                                {told[(rank + kRanks - 1) % kRanks].run(), 1.0 / 3}};
      combine_around_int8(x[rank].data(), x[rank].data(), told[rank].run(), terms, kCount);
    }
  }
  const double step = double{Told(x[0]).grid.step};
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(mean(i), before[i], 300 * std::ldexp(1.0, -24)) << i;
    for (std::size_t rank = 0; rank < kRanks; ++rank) EXPECT_NEAR(x[rank][i], before[i], 4 * step) << i;
  }
}

}  // namespace
}  // namespace starling::kernel

#include "starling/kernel/combine.h"

#include <bit>
#include <cmath>
#include <gmock/gmock.h>

#include "blocks.h"

namespace starling::kernel {
namespace {

using testing::HasSubstr;

template <typename T>
using Lane = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The definition, element by element. `volatile` keeps the compiler from fusing operations, so each is
// rounded.
template <typename T>
std::vector<T> reference(const std::vector<std::vector<T>>& sources, const std::vector<double>& weights,
                         std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    volatile Lane<T> sum = 0;
    for (std::size_t t = 0; t < sources.size(); ++t) {
      volatile Lane<T> product = static_cast<Lane<T>>(weights[t]) * static_cast<Lane<T>>(sources[t][i]);
      sum = t == 0 ? product : sum + product;
    }
    const Lane<T> total = sum;
    out[i] = static_cast<T>(total);
  }
  return out;
}

// The definition for averages: adds differences from source `base`. With `divide`, sums without weights and
// divides at the end.
template <typename T>
std::vector<T> average_reference(const std::vector<std::vector<T>>& sources,
                                 const std::vector<double>& weights, std::size_t count, std::size_t base,
                                 bool divide) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<Lane<T>>(sources[base][i]);
    volatile Lane<T> sum = 0;
    bool empty = true;
    for (std::size_t t = 0; t < sources.size(); ++t) {
      if (t == base) continue;
      volatile Lane<T> part = first - static_cast<Lane<T>>(sources[t][i]);
      if (!divide) part = static_cast<Lane<T>>(weights[t]) * part;
      sum = empty ? part : sum + part;
      empty = false;
    }
    if (divide) sum = sum / static_cast<Lane<T>>(sources.size());
    volatile Lane<T> total = first - sum;
    out[i] = static_cast<T>(static_cast<Lane<T>>(total));
  }
  return out;
}

enum class Kind { products, equal, convex, convex_with_zeros };

template <typename T>
struct Case {
  Case(std::size_t terms, std::size_t count, std::uint64_t seed, Kind kind = Kind::products) {
    const std::size_t zeros = kind == Kind::convex_with_zeros ? terms / 2 : 0;
    double sum = 0;
    for (std::size_t t = 0; t < terms; ++t) {
      sources.push_back(odd_numbers<T>(count, seed * 100 + t));
      weights.push_back(t < zeros ? 0.0 : 1.0 / (3.0 + static_cast<double>(t)));
      sum += weights.back();
    }
    if (kind == Kind::products) {
      if (terms > 1) weights[1] = -0.3;
      expected = reference(sources, weights, count);
      return;
    }
    for (double& weight : weights)
      weight = kind == Kind::equal ? 1.0 / static_cast<double>(terms) : weight / sum;
    const bool divide = kind == Kind::equal && !std::has_single_bit(terms) && sizeof(T) > 2;
    expected = average_reference(sources, weights, count, zeros, divide);
  }

  // Runs with every source at a different offset; out is source `alias`, or separate if there is no source of
  // that number.
  testing::AssertionResult run(std::size_t count, std::size_t offset, std::size_t alias,
                               Store store = Store::automatic) {
    std::vector<Placed<T>> placed;
    std::vector<Term> terms;
    for (std::size_t t = 0; t < sources.size(); ++t) placed.emplace_back(sources[t], (offset + t * 3) % 64);
    for (std::size_t t = 0; t < sources.size(); ++t) terms.push_back({placed[t].data(), weights[t]});
    Placed<T> separate(count, offset);
    Placed<T>& out = alias < placed.size() ? placed[alias] : separate;
    combine(dtype_of<T>, out.data(), terms, count, store);
    if (!out.guards_stand()) return testing::AssertionFailure() << "wrote outside";
    for (std::size_t t = 0; t < placed.size(); ++t)
      if (t != alias && !same_blocks(placed[t].values(), sources[t]))
        return testing::AssertionFailure() << "changed source " << t;
    return same_blocks(out.values(), expected);
  }

  std::vector<std::vector<T>> sources;
  std::vector<double> weights;
  std::vector<T> expected;
};

class CombineTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(CombineTest);

template <typename Body>
void for_floating(const Body& body) {
  body(std::type_identity<double>{});
  body(std::type_identity<float>{});
  body(std::type_identity<Half>{});
  body(std::type_identity<BFloat16>{});
}

constexpr std::size_t kNone = 1000;

TEST_P(CombineTest, AnyNumberOfTermsAndAnyLengthMatchTheReferenceBitForBit) {
  for_floating([]<typename T>(std::type_identity<T>) {
    for (std::size_t terms = 0; terms <= 9; ++terms)
      for (std::size_t count = 0; count <= 70; ++count) {
        Case<T> c(terms, count, count);
        ASSERT_TRUE(c.run(count, count % 5, kNone)) << terms << " terms";
        ASSERT_TRUE(c.run(count, count % 7, count % 10)) << terms << " terms, out is term " << count % 10;
        ASSERT_TRUE(c.run(count, count % 3, kNone, Store::streaming)) << terms << " terms, streaming";
      }
  });
}

TEST_P(CombineTest, AveragesMatchTheirReferenceBitForBit) {
  for_floating([]<typename T>(std::type_identity<T>) {
    for (const Kind kind : {Kind::equal, Kind::convex, Kind::convex_with_zeros})
      for (std::size_t terms = 2; terms <= 9; ++terms)
        for (std::size_t count = 0; count <= 70; count += 1 + count % 3) {
          Case<T> c(terms, count, count, kind);
          ASSERT_TRUE(c.run(count, count % 5, kNone)) << terms << " terms, kind " << static_cast<int>(kind);
          ASSERT_TRUE(c.run(count, count % 7, count % 10)) << terms << " terms, out is term " << count % 10;
          ASSERT_TRUE(c.run(count, count % 3, kNone, Store::streaming)) << terms << " terms, streaming";
        }
  });
}

TEST_P(CombineTest, AnyPlaceInMemory) {
  for_floating([]<typename T>(std::type_identity<T>) {
    for (const std::size_t terms : {1U, 2U, 3U, 6U}) {
      Case<T> c(terms, 150, terms);
      for (std::size_t offset = 0; offset < 64; ++offset) {
        ASSERT_TRUE(c.run(150, offset, kNone)) << offset;
        ASSERT_TRUE(c.run(150, offset, terms - 1)) << offset;
        ASSERT_TRUE(c.run(150, offset, kNone, Store::streaming)) << offset;
      }
    }
  });
}

TEST_P(CombineTest, LargeBlocks) {
  for_floating([]<typename T>(std::type_identity<T>) {
    for (const std::size_t count : {4096U, 99'991U}) {
      Case<T> c(3, count, 5);
      EXPECT_TRUE(c.run(count, 1, kNone));
      EXPECT_TRUE(c.run(count, 0, 0));
      EXPECT_TRUE(c.run(count, 3, kNone, Store::streaming));
    }
  });
}

TEST_P(CombineTest, SplittingTheRangeChangesNoBit) {
  for_floating([]<typename T>(std::type_identity<T>) {
    constexpr std::size_t kCount = 1000;
    Case<T> c(4, kCount, 9);
    Random random(3, 0, 0);
    for (int round = 0; round < 20; ++round) {
      std::vector<T> out(kCount);
      for (std::size_t begin = 0; begin < kCount;) {
        const std::size_t length = std::min<std::size_t>(kCount - begin, random.next() % 100);
        std::vector<Term> terms;
        for (std::size_t t = 0; t < 4; ++t) terms.push_back({c.sources[t].data() + begin, c.weights[t]});
        combine(dtype_of<T>, out.data() + begin, terms, length,
                round % 2 == 0 ? Store::cached : Store::streaming);
        begin += length;
      }
      ASSERT_TRUE(same_blocks(out, c.expected));
    }
  });
}

// With a fused multiply-add, the square of 1 + 2^-12 minus its rounded value would leave 2^-24.
TEST_P(CombineTest, ProductsAreRoundedBeforeTheyAreAdded) {
  const float x = 1.0F + std::ldexp(1.0F, -12);
  const std::vector<float> left(40, 1.0F + std::ldexp(1.0F, -11));
  const std::vector<float> right(40, x);
  std::vector<float> out(40);
  for (const std::size_t count : {1U, 40U}) {
    const Term terms[] = {{left.data(), -1.0}, {right.data(), x}};
    combine(DType::float32, out.data(), terms, count);
    EXPECT_EQ(out[0], 0.0F);
    EXPECT_EQ(out[count - 1], 0.0F);
  }
}

TEST_P(CombineTest, NaNWeightsAndInfinitiesGiveNaN) {
  for_floating([]<typename T>(std::type_identity<T>) {
    const std::vector<T> ones(100, T(1.0F));
    const std::vector<T> infinite(100, T(std::numeric_limits<float>::infinity()));
    std::vector<T> out(100);
    const double strange = std::bit_cast<double>(0x7FFFFFFFFFFFFFFFU);
    for (const double weight : {strange, -strange, std::numeric_limits<double>::quiet_NaN()}) {
      const Term terms[] = {{ones.data(), 1.0}, {ones.data(), weight}};
      combine(dtype_of<T>, out.data(), terms, 100);
      for (const T value : out) ASSERT_TRUE(std::isnan(static_cast<double>(value)));
    }
    const Term terms[] = {{infinite.data(), 1.0}, {infinite.data(), -1.0}};
    combine(dtype_of<T>, out.data(), terms, 100);
    for (const T value : out) ASSERT_TRUE(std::isnan(static_cast<double>(value)));
  });
}

TEST(CombineErrorTest, IntegersAreRefusedByName) {
  std::int32_t out = 0;
  EXPECT_THAT([&] { combine(DType::int32, &out, {}, 1); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("int32")));
  EXPECT_THAT([&] { combine(static_cast<DType>(99), &out, {}, 1); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("dtype 99")));
}

TEST(CombineErrorTest, NothingIsTouchedWithoutElements) {
  const Term terms[] = {{nullptr, 1.0}, {nullptr, 2.0}};
  combine(DType::float32, nullptr, terms, 0);
  combine(DType::float64, nullptr, {}, 0);
}

}  // namespace
}  // namespace starling::kernel

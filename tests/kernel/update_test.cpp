#include "starling/kernel/update.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <optional>

#include "blocks.h"
#include "starling/base/error.h"
#include "starling/kernel/convert.h"

namespace starling::kernel {
namespace {

using testing::HasSubstr;
using Exact = long double;

constexpr std::size_t kNoAlias = 1000;

template <typename T>
T rounded(double value) {
  if constexpr (sizeof(T) == 2)
    return static_cast<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// Everything an update reads, and what it wrote. State: m, v and sum, of whom a kernel uses what it needs.
template <typename T>
struct Numbers {
  std::vector<std::vector<T>> from;
  std::vector<double> weights;
  std::vector<T> gradient, m, v, sum, x, copy;

  Numbers(std::size_t terms, std::size_t count, std::uint64_t seed) {
    Random random(seed, 7, 7);
    const auto draw = [&](double low, double high) {
      std::vector<T> values(count);
      for (T& value : values) value = rounded<T>(low + random.uniform() * (high - low));
      return values;
    };
    for (std::size_t t = 0; t < terms; ++t) {
      from.push_back(draw(-2, 2));
      weights.push_back(terms == 1 && seed % 2 == 0 ? 1
                                                    : (t == 1 ? -0.3 : 1.0 / (2.0 + static_cast<double>(t))));
    }
    gradient = draw(-1, 1);
    m = draw(-1, 1);
    v = draw(0.1, 1);
    sum = draw(-0.5, 0.5);
  }
};

struct Layout {
  std::size_t alias = kNoAlias;  // x is this summand
  bool copy = true;
  double gradient_scale = 1;
};

/// The same numbers in unaligned memory.
template <typename T>
struct Placement {
  std::vector<Placed<T>> from;
  std::vector<Term> terms;
  Placed<T> gradient, m, v, sum, separate, copy;

  explicit Placement(const Numbers<T>& start)
      : gradient(start.gradient, 3),
        m(start.m, 5),
        v(start.v, 7),
        sum(start.sum, 1),
        separate(start.gradient.size(), 9),
        copy(start.gradient.size(), 11) {
    for (std::size_t t = 0; t < start.from.size(); ++t) from.emplace_back(start.from[t], t + 1);
    for (std::size_t t = 0; t < start.from.size(); ++t) terms.push_back({from[t].data(), start.weights[t]});
  }
};

using Kernel = std::function<void(const UpdatePass& pass, Buffer m, Buffer v, Buffer sum)>;

/// The state after a kernel; throws if it wrote outside of its blocks.
template <typename T>
Numbers<T> after(const Numbers<T>& start, const Layout& layout, const Kernel& kernel) {
  Placement<T> placed(start);
  Placed<T>& x = layout.alias < placed.from.size() ? placed.from[layout.alias] : placed.separate;
  const auto of = [&](Placed<T>& one) { return Buffer(dtype_of<T>, one.data(), start.gradient.size()); };
  const UpdatePass pass{placed.terms, of(placed.gradient), layout.gradient_scale, of(x),
                        layout.copy ? of(placed.copy) : Buffer()};
  kernel(pass, of(placed.m), of(placed.v), of(placed.sum));
  Numbers<T> end = start;
  end.x = x.values();
  end.m = placed.m.values();
  end.v = placed.v.values();
  end.sum = placed.sum.values();
  end.copy = placed.copy.values();
  bool inside = true;
  for (Placed<T>* one : {&placed.gradient, &placed.m, &placed.v, &placed.sum, &x, &placed.copy})
    inside = inside && one->guards_stand();
  if (!inside) throw Error("wrote outside");
  if (!same_blocks(placed.gradient.values(), start.gradient)) throw Error("changed the gradient");
  for (std::size_t t = 0; t < start.from.size(); ++t)
    if (t != layout.alias && !same_blocks(placed.from[t].values(), start.from[t]))
      throw Error("changed a summand");
  if (layout.copy && !same_blocks(end.copy, end.x)) throw Error("the copy differs");
  return end;
}

/// One element's step, in higher precision than the kernels.
struct Element {
  Exact y, g, m, v, sum;
};
using Rule = std::function<Exact(Element& e)>;  // returns x, changes m, v and sum

template <typename T>
Exact epsilon() {
  if constexpr (std::is_same_v<T, Half>) return 0x1p-10L / 32;  // rounded once
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-7L / 32;
  return std::numeric_limits<T>::epsilon();
}

template <typename T>
testing::AssertionResult close(T value, Exact expected, const char* what, std::size_t i) {
  const Exact allowed = 32 * epsilon<T>() * (1 + std::abs(expected));
  if (std::abs(static_cast<Exact>(value) - expected) <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << "[" << i << "] is " << value << " instead of "
                                     << static_cast<double>(expected);
}

template <typename T>
testing::AssertionResult follows(const Numbers<T>& start, const Numbers<T>& end, double scale,
                                 const Rule& rule) {
  for (std::size_t i = 0; i < end.x.size(); ++i) {
    Element e{0, static_cast<Exact>(scale) * start.gradient[i], start.m[i], start.v[i], start.sum[i]};
    for (std::size_t t = 0; t < start.from.size(); ++t)
      e.y += static_cast<Exact>(start.weights[t]) * start.from[t][i];
    const Exact x = rule(e);
    for (const auto& result : {close(end.x[i], x, "x", i), close(end.m[i], e.m, "m", i),
                               close(end.v[i], e.v, "v", i), close(end.sum[i], e.sum, "sum", i)})
      if (!result) return result;
  }
  return testing::AssertionSuccess();
}

template <typename T>
testing::AssertionResult same_bits(const Numbers<T>& left, const Numbers<T>& right) {
  for (const auto& result : {same_blocks(left.x, right.x), same_blocks(left.m, right.m),
                             same_blocks(left.v, right.v), same_blocks(left.sum, right.sum)})
    if (!result) return result;
  return testing::AssertionSuccess();
}

class UpdateTest : public EveryTarget {
 protected:
  /// Runs 1 to 6 terms with many lengths and layouts: results must be near the rule, and have the same bits
  /// as the baseline instruction set.
  template <typename T>
  void check_in(const Kernel& kernel, const Rule& rule) {
    std::uint64_t seed = 0;
    for (std::size_t terms = 1; terms <= 6; ++terms)
      for (const std::size_t count : {0U, 1U, 3U, 7U, 17U, 71U, terms < 4 ? 301U : 8193U}) {
        const Numbers<T> start(terms, count, ++seed);
        for (const Layout& layout : {Layout{}, Layout{0, true, 0.375}, Layout{terms - 1, false, -1.5}}) {
          use_target(GetParam());
          const Numbers<T> end = after<T>(start, layout, kernel);
          ASSERT_TRUE(follows(start, end, layout.gradient_scale, rule))
              << name(dtype_of<T>) << ", " << terms << " terms of " << count << ", x is term "
              << layout.alias;
          use_target(Target::baseline);
          ASSERT_TRUE(same_bits(end, after<T>(start, layout, kernel))) << terms << " terms of " << count;
        }
      }
  }

  void check(const Kernel& kernel, const Rule& rule) {
    check_in<float>(kernel, rule);
    check_in<double>(kernel, rule);
    check_in<Half>(kernel, rule);
    check_in<BFloat16>(kernel, rule);
  }
};
STARLING_ON_EVERY_TARGET(UpdateTest);

TEST_P(UpdateTest, SgdWithAndWithoutMomentum) {
  for (const SgdRule& rule :
       {SgdRule{0.1, 0, 0, 0, false}, SgdRule{0.1, 0, 0, 0.05, false}, SgdRule{0.05, 0.9, 0, 0, false},
        SgdRule{0.05, 0.8, 0.25, 0.1, false}, SgdRule{0.05, 0.9, 0, 0.1, true}})
    for (const bool first : {false, true})
      check([&](const UpdatePass& pass, Buffer m, Buffer, Buffer) { sgd_update(pass, rule, m, first); },
            [&](Element& e) {
              Exact d = e.g + rule.weight_decay * e.y;
              if (rule.momentum != 0) {
                e.m = first ? d : rule.momentum * e.m + (1 - rule.dampening) * d;
                d = rule.nesterov ? d + rule.momentum * e.m : e.m;
              }
              return e.y - rule.lr * d;
            });
}

// Both kinds of weight decay, and Adam's step from its moments.
Exact decayed(const AdamRule& rule, Element& e) {
  if (!rule.decoupled) e.g += rule.weight_decay * e.y;
  return rule.decoupled ? (1 - static_cast<Exact>(rule.lr) * rule.weight_decay) * e.y : e.y;
}
Exact adam_step(const AdamRule& rule, Exact m, Exact v, long t) {
  const Exact mean = m / (1 - std::pow(static_cast<Exact>(rule.beta1), t));
  const Exact square = v / (1 - std::pow(static_cast<Exact>(rule.beta2), t));
  return rule.lr * mean / (std::sqrt(square) + rule.eps);
}

const std::vector<AdamRule> kAdamRules = {
    {0.01, 0.9, 0.999, 1e-8, 0, false}, {0.1, 0.8, 0.95, 1e-3, 0.1, false}, {0.1, 0.7, 0.9, 1e-2, 0.2, true}};

TEST_P(UpdateTest, AdamAndAdamW) {
  for (const AdamRule& rule : kAdamRules)
    for (const long t : {1L, 2L, 40L})
      check([&](const UpdatePass& pass, Buffer m, Buffer v, Buffer) { adam_update(pass, rule, m, v, t); },
            [&](Element& e) {
              const Exact y = decayed(rule, e);
              e.m = rule.beta1 * e.m + (1 - static_cast<Exact>(rule.beta1)) * e.g;
              e.v = rule.beta2 * e.v + (1 - static_cast<Exact>(rule.beta2)) * e.g * e.g;
              return y - adam_step(rule, e.m, e.v, t);
            });
}

TEST_P(UpdateTest, AccumAdamKeepsItsMomentsBetweenFolds) {
  for (const AdamRule& rule : kAdamRules)
    for (const bool fold : {false, true})
      check([&](const UpdatePass& pass, Buffer m, Buffer v,
                Buffer sum) { accum_adam_update(pass, rule, m, v, sum, 3, 4, fold); },
            [&](Element& e) {
              const Exact y = decayed(rule, e);
              const Exact rest1 = 1 - static_cast<Exact>(rule.beta1);
              const Exact rest2 = 1 - static_cast<Exact>(rule.beta2);
              const Exact x = y - adam_step(rule, rule.beta1 * e.m + rest1 * e.g,
                                            rule.beta2 * e.v + rest2 * e.g * e.g, 3);
              e.sum += e.g / 4;
              if (fold) {
                e.m = rule.beta1 * e.m + rest1 * e.sum;
                e.v = rule.beta2 * e.v + rest2 * e.sum * e.sum;
                e.sum = 0;
              }
              return x;
            });
}

TEST_P(UpdateTest, AccumAdamOfSingleStepsIsAdamBitForBit) {
  for (const AdamRule& rule : kAdamRules) {
    Numbers<float> plain(2, 333, 5);
    plain.sum.assign(333, 0);
    Numbers<float> accumulated = plain;
    for (long t = 1; t <= 20; ++t) {
      plain = after<float>(plain, {}, [&](const UpdatePass& pass, Buffer m, Buffer v, Buffer) {
        adam_update(pass, rule, m, v, t);
      });
      accumulated =
          after<float>(accumulated, {}, [&](const UpdatePass& pass, Buffer m, Buffer v, Buffer sum) {
            accum_adam_update(pass, rule, m, v, sum, t, 1, true);
          });
      ASSERT_TRUE(same_bits(plain, accumulated)) << "step " << t;
      plain.from[0] = plain.x;
      accumulated.from[0] = accumulated.x;
    }
  }
}

template <typename E>
std::vector<float> widened(const std::vector<E>& values) {
  return {values.begin(), values.end()};
}
template <typename E>
std::vector<E> narrowed(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// 16-bit parameters are computed in float32 and rounded once: sums, state and x.
template <typename E>
void check_rounded_once() {
  const Kernel kernels[] = {
      [](const UpdatePass& pass, Buffer m, Buffer, Buffer) {
        sgd_update(pass, {0.05, 0.9, 0.1, 0.1, true}, m, false);
      },
      [](const UpdatePass& pass, Buffer m, Buffer v, Buffer) { adam_update(pass, kAdamRules[1], m, v, 3); },
      [](const UpdatePass& pass, Buffer m, Buffer v, Buffer sum) {
        accum_adam_update(pass, kAdamRules[2], m, v, sum, 3, 4, true);
      }};
  for (const Kernel& kernel : kernels)
    for (const std::size_t terms : {1U, 2U, 3U, 4U, 5U, 6U, 16U})
      for (const bool average : {true, false}) {
        Numbers<E> start(terms, 333, terms);
        // Not equal: equal weights are divided in float32 alone, see kernel/average.h.
        if (average) start.weights.assign(terms, 0.5 / static_cast<double>(terms));
        if (average) start.weights[0] += 0.5;
        Numbers<float> wide(terms, 0, 1);
        for (std::size_t t = 0; t < terms; ++t) wide.from[t] = widened(start.from[t]);
        wide.weights = start.weights;
        wide.gradient = widened(start.gradient);
        wide.m = widened(start.m), wide.v = widened(start.v), wide.sum = widened(start.sum);
        const Numbers<E> end = after<E>(start, {terms - 1, true, 0.3}, kernel);
        const Numbers<float> expected = after<float>(wide, {terms - 1, true, 0.3}, kernel);
        ASSERT_TRUE(same_blocks(end.x, narrowed<E>(expected.x))) << terms << " terms";
        ASSERT_TRUE(same_blocks(end.m, narrowed<E>(expected.m)));
        ASSERT_TRUE(same_blocks(end.v, narrowed<E>(expected.v)));
        ASSERT_TRUE(same_blocks(end.sum, narrowed<E>(expected.sum)));
      }
}

TEST_P(UpdateTest, ShortTypesAreRoundedOnce) {
  check_rounded_once<Half>();
  check_rounded_once<BFloat16>();
}

TEST_P(UpdateTest, WhatRoundingMakesInfiniteIsMarked) {
  for (const float gradient : {-0.5F, -60.0F}) {
    std::vector<Half> x(37, Half(65'000.0F)), g(37, Half(gradient));
    const Buffer block(DType::float16, x.data(), 37);
    const Term own{x.data(), 1};
    bool nonfinite = false;
    sgd_update({{&own, 1}, {DType::float16, g.data(), 37}, 1, block, {}, &nonfinite}, {.lr = 10}, {}, true);
    EXPECT_EQ(nonfinite, gradient < -1);
    EXPECT_EQ(x[36], nonfinite ? std::numeric_limits<float>::infinity() : 64'992.0F);
  }
}

TEST_P(UpdateTest, SplittingTheRangeChangesNoBit) {
  const Numbers<double> start(5, 5000, 3);
  const Kernel whole = [](const UpdatePass& pass, Buffer m, Buffer v, Buffer) {
    adam_update(pass, kAdamRules[1], m, v, 2);
  };
  const Kernel parts = [&](const UpdatePass& pass, Buffer m, Buffer v, Buffer sum) {
    for (std::size_t begin = 0; begin < pass.x.count; begin += 613) {
      const std::size_t count = std::min<std::size_t>(613, pass.x.count - begin);
      std::vector<Term> terms(pass.from.begin(), pass.from.end());
      for (Term& term : terms) term.data = static_cast<const double*>(term.data) + begin;
      whole({terms, pass.gradient.part(begin, count), pass.gradient_scale, pass.x.part(begin, count),
             pass.copy.part(begin, count)},
            m.part(begin, count), v.part(begin, count), sum.part(begin, count));
    }
  };
  EXPECT_TRUE(same_bits(after<double>(start, {}, whole), after<double>(start, {}, parts)));
}

// The block's own value may be anything: a product with one would keep most values, but -0 and NaN must not
// be touched.
TEST_P(UpdateTest, AStepOfNothingReturnsTheBlockItself) {
  const auto odd = odd_numbers<float>(1000, 4);
  const std::vector<float> gradient(1000, 0.0F);
  const Term own{odd.data(), 1};
  std::vector<float> x(1000);
  sgd_update({{&own, 1},
              ConstBuffer(DType::float32, gradient.data(), 1000),
              1,
              Buffer(DType::float32, x.data(), 1000)},
             {}, {}, false);
  EXPECT_TRUE(same_blocks(x, odd));
}

TEST_P(UpdateTest, SumOfSquares) {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 1003U, 65'537U}) {
    const Numbers<double> numbers(1, count, count);
    std::vector<float> narrow(numbers.gradient.begin(), numbers.gradient.end());
    Exact wide_sum = 0;
    Exact narrow_sum = 0;
    for (const double value : numbers.gradient) wide_sum += static_cast<Exact>(value) * value;
    for (const float value : narrow) narrow_sum += static_cast<Exact>(value) * value;
    EXPECT_NEAR(sum_of_squares(DType::float64, numbers.gradient.data(), count), static_cast<double>(wide_sum),
                1e-13 * static_cast<double>(1 + wide_sum));
    const double found = sum_of_squares(DType::float32, narrow.data(), count);
    EXPECT_NEAR(found, static_cast<double>(narrow_sum), 1e-13 * static_cast<double>(1 + narrow_sum));
    use_target(Target::baseline);
    EXPECT_EQ(found, sum_of_squares(DType::float32, narrow.data(), count));
    use_target(GetParam());
  }
  const std::vector<float> large(3, 1e30F);  // their squares overflow float
  EXPECT_NEAR(sum_of_squares(DType::float32, large.data(), 3) / 3e60, 1, 1e-6);
}

TEST(UpdateErrorTest, OtherTypesAreRefusedByName) {
  float x = 0;
  const Term own{&x, 1};
  const auto pass_of = [&](DType dtype) { return UpdatePass{{&own, 1}, {dtype, &x, 1}, 1, {dtype, &x, 1}}; };
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal([&] { sgd_update(pass_of(DType::int16), {}, {}, false); }),
              HasSubstr("sgd: parameters are float32, float64, float16 or bfloat16, not int16"));
  EXPECT_THAT(refusal([&] { adam_update(pass_of(DType::int32), {}, {}, {}, 1); }), HasSubstr("int32"));
  EXPECT_THAT(refusal([&] { accum_adam_update(pass_of(DType::int8), {}, {}, {}, {}, 1, 1, true); }),
              HasSubstr("int8"));
  EXPECT_THAT(refusal([&] {
                UpdatePass pass = pass_of(DType::float32);
                pass.gradient.dtype = DType::bfloat16;
                sgd_update(pass, {}, {}, false);
              }),
              HasSubstr("the gradient of float32 cannot be bfloat16"));
  EXPECT_THAT(refusal([&] { sum_of_squares(DType::int64, &x, 0); }), HasSubstr("int64"));
  EXPECT_THAT(refusal([&] { sgd_update({}, {}, {}, false); }), HasSubstr("something to start from"));
}

// Averages of as many terms as one pass handles, and of more.
template <typename E>
void check_short_copy() {
  for (const std::size_t count : {1U, 7U, 67U, 9001U})
    for (const std::size_t terms : {1U, 2U, 6U}) {
      std::vector<float> x = odd_numbers<float>(count, 1), gradient = odd_numbers<float>(count, 2);
      Placed<E> copy(count, 3);
      Placed<BFloat16> second(count, 1);
      std::vector<E> expected(count);
      std::vector<BFloat16> second_expected(count);
      const std::vector<Term> from(terms, {x.data(), 0.5});
      sgd_update({from,
                  {DType::float32, gradient.data(), count},
                  1,
                  {DType::float32, x.data(), count},
                  {dtype_of<E>, copy.data(), count},
                  nullptr,
                  {DType::bfloat16, second.data(), count}},
                 {}, {}, true);
      convert(DType::float32, x.data(), dtype_of<E>, expected.data(), count);
      convert(DType::float32, x.data(), DType::bfloat16, second_expected.data(), count);
      ASSERT_TRUE(copy.guards_stand() && second.guards_stand());
      ASSERT_TRUE(same_blocks(copy.values(), expected)) << count << " of " << terms << " terms";
      ASSERT_TRUE(same_blocks(second.values(), second_expected)) << count << " of " << terms << " terms";
    }
}

TEST_P(UpdateTest, CopiesInFewerBitsAreRounded) {
  check_short_copy<Half>();
  check_short_copy<BFloat16>();
  check_short_copy<float>();
}

TEST(UpdateCopyTest, OtherTypesAreRefused) {
  std::vector<double> x(4);
  std::vector<float> copy(4);
  const Term own{x.data(), 1};
  const Buffer block(DType::float64, x.data(), 4);
  EXPECT_THROW(sgd_update({{&own, 1}, block, 1, block, {DType::float32, copy.data(), 4}}, {}, {}, true),
               InvalidArgument);
}

}  // namespace
}  // namespace starling::kernel

#include "starling/kernel/arithmetic.h"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>

#include "blocks.h"
#include "starling/kernel/average.h"
#include "starling/kernel/element_rules.h"

namespace starling::kernel {
namespace {

/// Vectors of one length, with values that depend on a seed.
template <typename T>
std::vector<T> drawn(std::size_t count, std::uint64_t seed, double low = -2, double high = 2) {
  Random random(seed, 3, 5);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(low + random.uniform() * (high - low));
  return values;
}
template <typename T>
Buffer buffer_over(std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}

/// One element of the sum at the start of a pass, by the rule of its form.
template <typename T>
T summed(std::span<const Term> given, std::size_t i) {
  const SumPlan plan(dtype_of<T>, given);
  std::vector<T> x, weight;
  for (const Term& term : plan.terms) {
    x.push_back(static_cast<const T*>(term.data)[i]);
    weight.push_back(static_cast<T>(term.weight));
  }
  const int n = static_cast<int>(x.size());
  if (plan.form == SumForm::products)
    return n == 1 && weight[0] == T(1) ? x[0] : rules::products(x.data(), weight.data(), n);
  return plan.form == SumForm::mean ? rules::mean(x.data(), n) : rules::average(x.data(), weight.data(), n);
}

class ElementRuleTest : public EveryTarget {
 protected:
  /// Runs `kernel` on 1 to 6 terms of odd lengths and compares every element with `rule`, bit for bit.
  template <typename T, typename Kernel, typename Rule>
  void check(const Kernel& kernel, const Rule& rule) {
    std::uint64_t seed = 0;
    for (std::size_t n = 1; n <= 6; ++n)
      for (const std::size_t count : {1U, 7U, 64U, 1003U})
        for (const bool equal : {true, false}) {
          std::vector<std::vector<T>> blocks;
          std::vector<Term> terms;
          for (std::size_t t = 0; t < n; ++t) blocks.push_back(drawn<T>(count, ++seed));
          const auto share = 1.0 / static_cast<double>(n);
          for (std::size_t t = 0; t < n; ++t)
            terms.push_back({blocks[t].data(), equal    ? share
                                               : t == 0 ? 1 - share / 2 * static_cast<double>(n - 1)
                                                        : share / 2});
          std::vector<T> gradient = drawn<T>(count, ++seed), x(count);
          std::vector<T> m = drawn<T>(count, ++seed), v = drawn<T>(count, ++seed, 0.1, 1),
                         sum = drawn<T>(count, ++seed);
          std::vector<T> m1 = m, v1 = v, sum1 = sum, x1(count);
          kernel(UpdatePass{terms, buffer_over(gradient), 0.75, buffer_over(x)}, buffer_over(m),
                 buffer_over(v), buffer_over(sum));
          for (std::size_t i = 0; i < count; ++i)
            x1[i] = rule(summed<T>(terms, i), static_cast<T>(0.75) * gradient[i], m1[i], v1[i], sum1[i]);
          for (const auto& [found, expected] :
               {std::pair(x, x1), std::pair(m, m1), std::pair(v, v1), std::pair(sum, sum1)})
            ASSERT_TRUE(same_blocks(found, expected))
                << n << " terms of " << count << " x " << name(dtype_of<T>);
        }
  }
};
STARLING_ON_EVERY_TARGET(ElementRuleTest);

const std::vector<AdamRule> kRules = {
    {0.01, 0.9, 0.999, 1e-8, 0, false}, {0.1, 0.8, 0.95, 1e-3, 0.1, false}, {0.1, 0.7, 0.9, 1e-2, 0.2, true}};

template <typename T, typename Suite>
void check_sgd(const Suite& check) {
  for (const SgdRule& rule : {SgdRule{0.1, 0, 0, 0.05, false}, SgdRule{0.05, 0.8, 0.25, 0.1, false},
                              SgdRule{0.05, 0.9, 0, 0.1, true}})
    for (const bool first : {false, true}) {
      const rules::SgdNumbers<T> numbers(rule, first);
      check([&](const UpdatePass& pass, Buffer m, Buffer, Buffer) { sgd_update(pass, rule, m, first); },
            [&](T y, T g, T& m, T&, T&) { return rules::sgd(numbers, y, g, m); });
    }
}

TEST_P(ElementRuleTest, SgdIsItsRuleBitForBit) {
  check_sgd<float>([&](const auto& kernel, const auto& rule) { check<float>(kernel, rule); });
  check_sgd<double>([&](const auto& kernel, const auto& rule) { check<double>(kernel, rule); });
}

template <typename T, typename Suite>
void check_adam(const Suite& check) {
  for (const AdamRule& rule : kRules) {
    const rules::AdamNumbers<T> numbers(rule, 3);
    check([&](const UpdatePass& pass, Buffer m, Buffer v, Buffer) { adam_update(pass, rule, m, v, 3); },
          [&](T y, T g, T& m, T& v, T&) { return rules::adam(numbers, y, g, m, v); });
    for (const bool fold : {false, true})
      check([&](const UpdatePass& pass, Buffer m, Buffer v,
                Buffer sum) { accum_adam_update(pass, rule, m, v, sum, 3, 4, fold); },
            [&](T y, T g, T& m, T& v, T& sum) {
              return rules::accum_adam(numbers, static_cast<T>(0.25), fold, y, g, m, v, sum);
            });
  }
}

TEST_P(ElementRuleTest, AdamAndAccumAdamAreTheirRulesBitForBit) {
  check_adam<float>([&](const auto& kernel, const auto& rule) { check<float>(kernel, rule); });
  check_adam<double>([&](const auto& kernel, const auto& rule) { check<double>(kernel, rule); });
}

TEST(ArithmeticTest, MomentsAndTheirStepFollowAdam) {
  std::vector<float> x = drawn<float>(37, 1), g = drawn<float>(37, 2), m(37), v(37);
  const std::vector<float> before = x;
  const Arithmetic& host = arithmetic_in(MemoryKind::host);
  host.moments({.beta1 = 0.9, .beta2 = 0.99, .gradient_scale = 0.5, .weight_decay = 0.1}, buffer_over(x),
               buffer_over(g), buffer_over(m), buffer_over(v));
  host.moment_step({.lr = 0.1, .weight_decay = 0.2, .eps = 1e-8, .m_correction = 0.1, .v_correction = 0.01},
                   buffer_over(x), buffer_over(m), buffer_over(v));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = 0.5 * static_cast<double>(g[i]) + 0.1 * static_cast<double>(before[i]);
    EXPECT_NEAR(m[i], 0.1 * d, 1e-6);
    EXPECT_NEAR(v[i], 0.01 * d * d, 1e-6);
    EXPECT_NEAR(x[i], before[i] - 0.1 * (0.2 * before[i] + d / (std::abs(d) + 1e-8)), 1e-5);
  }
  const std::vector<float> kept = v;
  host.moments({}, buffer_over(x), buffer_over(g), buffer_over(m), {});
  EXPECT_EQ(v, kept);
}

TEST(ArithmeticTest, CopiesConvertSwapAndZero) {
  const Arithmetic& host = arithmetic_in(MemoryKind::host);
  std::vector<double> wide = {1, 2, 0.1};
  std::vector<float> narrow(3), other = {7, 8, 9};
  host.copy(buffer_over(narrow), buffer_over(wide));
  EXPECT_EQ(narrow, (std::vector<float>{1, 2, 0.1F}));
  host.swap(buffer_over(narrow), buffer_over(other));
  EXPECT_EQ(narrow, (std::vector<float>{7, 8, 9}));
  host.zero(buffer_over(narrow));
  EXPECT_EQ(narrow, std::vector<float>(3));
  const std::vector<float> five = {1, 2, 3, 4, 5};
  host.copy_strided(buffer_over(narrow), 1, {DType::float32, five.data(), 5}, 2);
  EXPECT_EQ(narrow, (std::vector<float>{1, 3, 5}));
  host.copy_strided(buffer_over(narrow), 2, {DType::float32, five.data() + 1, 4}, 3);
  EXPECT_EQ(narrow, (std::vector<float>{2, 3, 5}));
  EXPECT_EQ(host.sum_of_squares(buffer_over(other)),
            1 + 4 + static_cast<double>(0.1F) * static_cast<double>(0.1F));
}

TEST(ArithmeticTest, OwnedBuffersAreZeroAndAligned) {
  const OwnedBuffer owned(DType::float32, 1001);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(owned.buffer().address()) % 64, 0U);
  for (std::size_t i = 0; i < 1001; ++i) ASSERT_EQ(owned.buffer().host<float>()[i], 0);
}

TEST(ArithmeticTest, HostKernelsRefuseDeviceMemory) {
  std::vector<float> x(4);
  const ConstBuffer device(DType::float32, x.data(), 4, MemoryKind::cuda, nullptr);
  const Term terms[] = {{device, 1}};
  EXPECT_THROW(combine(buffer_over(x), terms), InvalidArgument);
}

}  // namespace
}  // namespace starling::kernel

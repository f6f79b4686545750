#include <gtest/gtest.h>
#include <limits>
#include <memory>

#include "twins.h"

namespace starling::kernel::cuda {
namespace {

/// Runs `update(arithmetic, pass, m, v, sum)` on the host and on the device.
template <typename T, typename Update>
void check_update(const Update& update) {
  std::uint64_t seed = 0;
  for (const std::size_t n : kTermCounts)
    for (const std::size_t count : kCounts)
      for (const Layout layout : kLayouts) {
        // In place, as optimizers do; and elsewhere with a copy, as for shared blocks.
        for (const bool in_place : {false, true}) {
          const std::vector<std::vector<double>> all = weights_of(n);
          const std::vector<double>& weights = all[++seed % all.size()];
          Twins<T> x(n + 6, count, layout, seed);  // the terms, x, copy, gradient, m, v, sum
          const std::size_t out = in_place ? 0 : n;
          const std::vector<Term> host = x.host_terms(weights), device = x.device_terms(weights);
          bool host_mark = false;
          const std::shared_ptr<bool> device_mark = on_gpu().make_mark();
          update(on_host(),
                 UpdatePass{host, x[n + 2].host(), 0.75, x[out].host(), in_place ? Buffer() : x[n + 1].host(),
                            &host_mark},
                 x[n + 3].host(), x[n + 4].host(), x[n + 5].host());
          update(on_gpu(),
                 UpdatePass{device, x[n + 2].device(), 0.75, x[out].device(),
                            in_place ? Buffer() : x[n + 1].device(), device_mark.get()},
                 x[n + 3].device(), x[n + 4].device(), x[n + 5].device());
          finish();
          ASSERT_TRUE(x.same()) << n << " terms of " << count << ", layout " << static_cast<int>(layout);
          ASSERT_EQ(*device_mark, host_mark);
        }
      }
}

template <typename T>
void check_sgd() {
  for (const SgdRule& rule : {SgdRule{0.1, 0, 0, 0, false}, SgdRule{0.1, 0, 0, 0.05, false},
                              SgdRule{0.05, 0.8, 0.25, 0.1, false}, SgdRule{0.05, 0.9, 0, 0.1, true}})
    for (const bool first : {false, true})
      check_update<T>([&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer, Buffer) {
        arithmetic.sgd_update(pass, rule, m, first);
      });
}

TEST(CudaUpdatesTest, SgdHasTheBitsOfTheHost) {
  check_sgd<float>();
  check_sgd<double>();
  check_sgd<Half>();
  check_sgd<BFloat16>();
}

const AdamRule kAdamRules[] = {
    {0.01, 0.9, 0.999, 1e-8, 0, false}, {0.1, 0.8, 0.95, 1e-3, 0.1, false}, {0.1, 0.7, 0.9, 0, 0.2, true}};

template <typename T>
void check_adam() {
  for (const AdamRule& rule : kAdamRules)
    for (const long t : {1L, 30L})
      check_update<T>([&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer v, Buffer) {
        arithmetic.adam_update(pass, rule, m, v, t);
      });
}

TEST(CudaUpdatesTest, AdamHasTheBitsOfTheHost) {
  check_adam<float>();
  check_adam<double>();
  check_adam<Half>();
  check_adam<BFloat16>();
}

template <typename T>
void check_accum_adam() {
  for (const AdamRule& rule : kAdamRules)
    for (const bool fold : {false, true})
      check_update<T>([&](const Arithmetic& arithmetic, const UpdatePass& pass, Buffer m, Buffer v,
                          Buffer sum) { arithmetic.accum_adam_update(pass, rule, m, v, sum, 3, 4, fold); });
}

TEST(CudaUpdatesTest, AccumAdamHasTheBitsOfTheHost) {
  check_accum_adam<float>();
  check_accum_adam<double>();
  check_accum_adam<Half>();
  check_accum_adam<BFloat16>();
}

TEST(CudaUpdatesTest, SgdWithoutMomentumNeedsNoState) {
  Twins<float> x(2, 37, Layout::aligned, 5);
  const double one[] = {1};
  on_host().sgd_update({x.host_terms(one), x[1].host(), 1, x[0].host()}, {}, {}, true);
  on_gpu().sgd_update({x.device_terms(one), x[1].device(), 1, x[0].device()}, {}, {}, true);
  finish();
  EXPECT_TRUE(x.same());
}

TEST(CudaUpdatesTest, MarksNonfiniteResultsOnly) {
  // eps = 0 and v = 0: threads at the ends compute NaN outside of the block.
  DeviceVector<float> ones(1003, 1), m(1003, 1), v(1003, 1);
  const auto buffer = [](DeviceVector<float>& values) {
    return Buffer(DType::float32, values.data(), values.size(), MemoryKind::cuda, nullptr);
  };
  const Term own{ConstBuffer(buffer(ones)), 1};
  const std::shared_ptr<bool> mark = on_gpu().make_mark();
  const UpdatePass pass{{&own, 1}, buffer(ones), 1, buffer(ones), {}, mark.get()};
  on_gpu().adam_update(pass, {.eps = 0}, buffer(m), buffer(v), 1);
  finish();
  EXPECT_FALSE(*mark);
  m[1002] = std::numeric_limits<float>::infinity();
  on_gpu().adam_update(pass, {.eps = 0}, buffer(m), buffer(v), 2);
  finish();
  EXPECT_TRUE(*mark);
}

template <typename T>
void check_moments() {
  for (const std::size_t count : kCounts)
    for (const Layout layout : kLayouts)
      for (const bool has_v : {true, false}) {
        Twins<T> x(4, count, layout, count);
        const MomentRule rule{.beta1 = 0.9, .beta2 = 0.99, .gradient_scale = 0.5, .weight_decay = 0.1};
        const MomentStepRule step{
            .lr = 0.1, .weight_decay = 0.2, .eps = 1e-8, .m_correction = 0.1, .v_correction = 0.01};
        on_host().moments(rule, x[0].host(), x[1].host(), x[2].host(), has_v ? x[3].host() : Buffer());
        on_host().moment_step(step, x[0].host(), x[2].host(), x[3].host());
        on_gpu().moments(rule, x[0].device(), x[1].device(), x[2].device(), has_v ? x[3].device() : Buffer());
        on_gpu().moment_step(step, x[0].device(), x[2].device(), x[3].device());
        finish();
        ASSERT_TRUE(x.same());
      }
}

TEST(CudaUpdatesTest, MomentsHaveTheBitsOfTheHost) {
  check_moments<float>();
  check_moments<double>();
}

template <typename E>
void check_short_copy() {
  for (const std::size_t count : kCounts)
    for (const Layout layout : kLayouts) {
      Twins<float> x(3, count, layout, count);
      Twins<E> copy(1, count, layout, count);
      Twins<BFloat16> rounded(1, count, layout, count);
      const double weights[] = {0.75, 0.25};
      const std::vector<Term> host = x.host_terms(weights), device = x.device_terms(weights);
      on_host().sgd_update({host, x[2].host(), 1, x[0].host(), copy[0].host(), nullptr, rounded[0].host()},
                           {}, {}, true);
      on_gpu().sgd_update(
          {device, x[2].device(), 1, x[0].device(), copy[0].device(), nullptr, rounded[0].device()}, {}, {},
          true);
      finish();
      ASSERT_TRUE(x.same() && copy.same() && rounded.same())
          << count << ", layout " << static_cast<int>(layout);
    }
}

TEST(CudaUpdatesTest, CopiesInFewerBitsHaveTheBitsOfTheHost) {
  check_short_copy<Half>();
  check_short_copy<BFloat16>();
  check_short_copy<float>();
}

TEST(CudaUpdatesTest, MarksWhatRoundingMakesInfinite) {
  DeviceVector<Half> x(1003, Half(65'000.0F)), gradient(1003, Half(-60.0F));
  const auto buffer = [](DeviceVector<Half>& values) {
    return Buffer(DType::float16, values.data(), values.size(), MemoryKind::cuda, nullptr);
  };
  const Term own{ConstBuffer(buffer(x)), 1};
  const std::shared_ptr<bool> mark = on_gpu().make_mark();
  on_gpu().sgd_update({{&own, 1}, buffer(gradient), 1, buffer(x), {}, mark.get()}, {.lr = 0.1}, {}, true);
  finish();
  EXPECT_FALSE(*mark);
  on_gpu().sgd_update({{&own, 1}, buffer(gradient), 1, buffer(x), {}, mark.get()}, {.lr = 10}, {}, true);
  finish();
  EXPECT_TRUE(*mark);
}

}  // namespace
}  // namespace starling::kernel::cuda

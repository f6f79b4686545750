#include "starling/kernel/finite.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "starling/kernel/convert.h"
#include "starling/kernel/target.h"
#include "starling/kernel/update.h"

namespace starling::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kElements = 75;  // some vectors and a remainder

template <typename Body>
void on_all_targets(const Body& body) {
  const Target before = current_target();
  for (const Target target : available_targets()) {
    use_target(target);
    body(name(target));
  }
  use_target(before);
}

TEST(AllFinite, FindsInfinitiesAndNansAnywhere) {
  on_all_targets([](const std::string& target) {
    for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
      std::vector<float> values(kElements, -1.5F);
      values[3] = 0;
      values[4] = 60000;
      const auto check = [&] {
        std::vector<std::byte> bytes(kElements * size_of(dtype));
        convert(DType::float32, values.data(), dtype, bytes.data(), kElements);
        return all_finite(dtype, bytes.data(), kElements);
      };
      EXPECT_TRUE(check()) << target << " " << name(dtype);
      for (const float bad : {kInf, -kInf, kNan})
        for (std::size_t i = 0; i < kElements; ++i) {
          const float good = std::exchange(values[i], bad);
          EXPECT_FALSE(check()) << target << " " << name(dtype) << " " << bad << " at " << i;
          values[i] = good;
        }
    }
  });
}

TEST(AllFinite, IntegersAndNothingAreFinite) {
  const std::vector<std::int32_t> all_ones(20, -1);
  EXPECT_TRUE(all_finite(DType::int32, all_ones.data(), all_ones.size()));
  EXPECT_TRUE(all_finite(DType::float32, nullptr, 0));
}

// Updates detect non-finite values in the pass that they make anyway.
template <typename T>
void check_updates(DType dtype, const std::string& target) {
  std::vector<T> x(kElements, T(2)), gradient(kElements, T(0.5)), m(kElements), v(kElements), sum(kElements);
  const auto flagged = [&](int kind) {
    std::vector<T> out(kElements);
    std::vector<T> first = m, second = v, third = sum;
    const Term own{x.data(), 1};
    bool nonfinite = false;
    const auto of = [&](std::vector<T>& values) { return Buffer(dtype, values.data(), kElements); };
    const UpdatePass pass{{&own, 1}, of(gradient), 1, of(out), {}, &nonfinite};
    if (kind == 0) sgd_update(pass, {.lr = 0.1, .momentum = 0.9}, of(first), false);
    if (kind == 1) adam_update(pass, {}, of(first), of(second), 1);
    if (kind == 2) accum_adam_update(pass, {}, of(first), of(second), of(third), 1, 2, false);
    return nonfinite;
  };
  for (const int kind : {0, 1, 2}) {
    EXPECT_FALSE(flagged(kind)) << target << " " << kind;
    for (const std::size_t i : {std::size_t{0}, std::size_t{17}, kElements - 1})
      for (const T bad : {T(kNan), kind == 0 ? T(-kInf) : T(kNan)}) {
        const T good = std::exchange(gradient[i], bad);
        EXPECT_TRUE(flagged(kind)) << target << " " << kind << " at " << i;
        gradient[i] = good;
      }
  }
}

TEST(AllFinite, UpdatesReportNonFiniteResults) {
  on_all_targets([](const std::string& target) {
    check_updates<float>(DType::float32, target);
    check_updates<double>(DType::float64, target);
  });
}

}  // namespace
}  // namespace starling::kernel

#include "starling/kernel/linear_model.h"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/kernel/target.h"

namespace starling::kernel {
namespace {

using testing::HasSubstr;
using Exact = long double;

/// Random rows, some of them large enough for exp to saturate, and x.
struct Problem {
  std::size_t columns;
  std::vector<std::vector<float>> data;
  std::vector<const float*> rows;
  std::vector<double> targets, x;

  Problem(std::size_t count, std::size_t width, std::uint64_t seed) : columns(width) {
    Random random(seed, 3, 3);
    for (std::size_t r = 0; r < count; ++r) {
      std::vector<float> row(width);
      const double scale = r % 7 == 6 ? 500 : 1;
      for (float& value : row) value = static_cast<float>(scale * random.normal());
      data.push_back(row);
      targets.push_back(random.normal());
    }
    for (const auto& row : data) rows.push_back(row.data());
    for (std::size_t k = 0; k < width; ++k) x.push_back(random.normal() / std::sqrt(width));
  }

  LinearSamples samples() const { return {rows, targets, columns}; }

  Exact margin(std::size_t row) const {
    Exact sum = 0;
    for (std::size_t k = 0; k < columns; ++k) sum += Exact{data[row][k]} * x[k];
    return sum;
  }

  std::vector<Exact> exact_gradient(LinearLoss loss, Exact scale) const {
    std::vector<Exact> out(columns, 0);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Exact slope =
          loss == LinearLoss::logistic ? -1 / (1 + std::exp(margin(r))) : margin(r) - targets[r];
      for (std::size_t k = 0; k < columns; ++k) out[k] += scale * slope * data[r][k];
    }
    return out;
  }

  Exact exact_loss(LinearLoss loss) const {
    Exact sum = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Exact m = margin(r);
      sum += loss == LinearLoss::logistic ? std::max<Exact>(-m, 0) + std::log1p(std::exp(-std::abs(m)))
                                          : (m - targets[r]) * (m - targets[r]) / 2;
    }
    return sum;
  }
};

template <typename T>
std::vector<T> gradient_of(const Problem& problem, LinearLoss loss, double scale) {
  const std::vector<T> x(problem.x.begin(), problem.x.end());
  std::vector<T> out(problem.columns, T{77});
  linear_gradient(dtype_of<T>, loss, problem.samples(), x.data(), scale, out.data());
  return out;
}

class LinearModelTest : public testing::TestWithParam<LinearLoss> {
 protected:
  void TearDown() override { use_target(available_targets().back()); }
};

TEST_P(LinearModelTest, GradientsAndLossesAreRight) {
  for (const auto& [count, width] :
       {std::pair<std::size_t, std::size_t>{4, 8}, {32, 16}, {36, 104}, {100, 24}, {0, 8}}) {
    const Problem problem(count, width, count);
    const auto exact = problem.exact_gradient(GetParam(), 0.25L);
    Exact size = 1;
    for (const Exact value : exact) size = std::max(size, std::abs(value));
    const auto wide = gradient_of<double>(problem, GetParam(), 0.25);
    const auto narrow = gradient_of<float>(problem, GetParam(), 0.25);
    for (std::size_t k = 0; k < width; ++k) {
      EXPECT_NEAR(wide[k], static_cast<double>(exact[k]), static_cast<double>(1e-14L * size)) << count;
      EXPECT_NEAR(narrow[k], static_cast<double>(exact[k]), static_cast<double>(1e-5L * size)) << count;
    }
    const auto loss = static_cast<double>(problem.exact_loss(GetParam()));
    EXPECT_NEAR(linear_loss(GetParam(), problem.samples(), problem.x.data()), loss, 1e-14 * (10 + loss));
  }
}

TEST_P(LinearModelTest, TheSameBitsOnEveryTarget) {
  const Problem problem(52, 40, 1);
  std::vector<std::vector<double>> wide;
  std::vector<std::vector<float>> narrow;
  std::vector<double> losses;
  for (const Target target : available_targets()) {
    use_target(target);
    wide.push_back(gradient_of<double>(problem, GetParam(), 1.0 / 3));
    narrow.push_back(gradient_of<float>(problem, GetParam(), 1.0 / 3));
    losses.push_back(linear_loss(GetParam(), problem.samples(), problem.x.data()));
    EXPECT_EQ(wide.back(), wide.front()) << name(target);
    EXPECT_EQ(narrow.back(), narrow.front()) << name(target);
    EXPECT_EQ(losses.back(), losses.front()) << name(target);
  }
}

TEST_P(LinearModelTest, NansStayNans) {
  Problem problem(4, 8, 1);
  problem.x[3] = std::numeric_limits<double>::quiet_NaN();
  for (const double value : gradient_of<double>(problem, GetParam(), 1)) EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(std::isnan(linear_loss(GetParam(), problem.samples(), problem.x.data())));
}

INSTANTIATE_TEST_SUITE_P(Losses, LinearModelTest, testing::Values(LinearLoss::logistic, LinearLoss::squares),
                         [](const auto& test) {
                           return test.param == LinearLoss::logistic ? "logistic" : "squares";
                         });

// Unit rows give the slopes themselves, accurate to the last bits.
TEST(LinearModel, SigmoidsAreAccurate) {
  constexpr std::size_t kCount = 800;
  std::vector<std::vector<float>> data(kCount, std::vector<float>(kCount, 0.0F));
  std::vector<const float*> rows;
  std::vector<double> x;
  for (std::size_t i = 0; i < kCount; ++i) {
    data[i][i] = 1;
    rows.push_back(data[i].data());
    x.push_back(-40 + 0.1 * static_cast<double>(i));
  }
  const std::vector<float> narrow_x(x.begin(), x.end());
  std::vector<double> out(kCount);
  std::vector<float> narrow(kCount);
  linear_gradient(DType::float64, LinearLoss::logistic, {rows, {}, kCount}, x.data(), 1, out.data());
  linear_gradient(DType::float32, LinearLoss::logistic, {rows, {}, kCount}, narrow_x.data(), 1,
                  narrow.data());
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto exact = static_cast<double>(-1 / (1 + std::exp(Exact{x[i]})));
    const auto narrow_exact = static_cast<double>(-1 / (1 + std::exp(Exact{narrow_x[i]})));
    EXPECT_NEAR(out[i], exact, -1e-15 * exact) << x[i];
    EXPECT_NEAR(narrow[i], narrow_exact, -3e-7 * narrow_exact) << x[i];
  }
}

TEST(LinearModel, RefusesWhatDoesNotFit) {
  const Problem problem(4, 8, 1);
  std::vector<double> out(8);
  const auto refused = [&](DType dtype, const LinearSamples& samples, const char* why) {
    try {
      linear_gradient(dtype, LinearLoss::squares, samples, problem.x.data(), 1, out.data());
      ADD_FAILURE() << why;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  refused(DType::float64, {std::span(problem.rows).first(3), problem.targets, 8}, "rows of 4, not 8 and 3");
  refused(DType::float64, {problem.rows, problem.targets, 7}, "multiples of 8");
  refused(DType::float64, {problem.rows, {}, 8}, "not 0 for 4 rows");
  refused(DType::float16, problem.samples(), "not float16");
}

}  // namespace
}  // namespace starling::kernel

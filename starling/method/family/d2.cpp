#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::method::family {
namespace {

constexpr double kLeast = -1.0 / 3;
constexpr double kTolerance = 1e-9;

/// x^ = x + U + D, e = sum of w_j (x^_j - x^); x <- x^ + e, D <- D + e, summed so that rounding errors do not
/// accumulate. Exact diffusion is the same with half of e, which is (I + W) / 2 instead of W.
class D2 : public Method {
 public:
  explicit D2(double share) : share_(share) {}

  void adapt(Block& block) override {
    block.update();
    block.combine(block.x, {{block.x, 1}, {block.state("correction"), 1}});
    block.neighbors().differences({block.x, block.state("e"), 0});
  }

  void combine(Block& block) override {
    for (const Buffer target : {block.x, block.state("correction")})
      block.combine(target, {{target, 1}, {block.state("e"), share_}});
  }

  void view_changed(Block& block) override { block.zero(block.state("correction")); }

  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    if (share_ < 1) return;
    const double least = least_eigenvalue_of(schedule);
    if (least < kLeast - kTolerance)
      throw InvalidArgument(fmt::format(
          "d2 needs weights with no eigenvalue below -1/3; {} on {} ranks has {:.4f}: use exact-diffusion, "
          "which takes any symmetric weights, or ring",
          schedule.name(), schedule.size(), least));
  }
  MethodRequirements requirements() const override { return {.schedule = ScheduleKind::static_symmetric}; }
  std::string warning(const Schedule& schedule) const override {
    if (share_ < 1 || std::abs(least_eigenvalue_of(schedule) - kLeast) > kTolerance) return {};
    return fmt::format(
        "the least eigenvalue of {} on {} ranks is -1/3, d2's limit: it converges through curvature alone; "
        "exact-diffusion is on the safe side",
        schedule.name(), schedule.size());
  }

 private:
  double share_;
};

}  // namespace

MethodFamily exact_diffusion() {
  return {"exact-diffusion",
          "exact on heterogeneous data with any fixed symmetric weights: d2 with (I + W) / 2",
          {},
          [](const Parameters&) { return std::make_shared<D2>(0.5); }};
}

MethodFamily d2() {
  return {"d2",
          "exact on heterogeneous data: undoes the changes by mixing; eigenvalues of at least -1/3",
          {},
          [](const Parameters&) { return std::make_shared<D2>(1); }};
}

}  // namespace starling::method::family

#include "starling/method/family/list.h"
#include "starling/method/family/tracker.h"

namespace starling::method::family {
namespace {

/// x <- sum of w_j (x_j + U(x_j, y_j)); y <- sum of w_j y_j + g_new - g_old. Exact on heterogeneous data,
/// also on directed and changing graphs.
class GradientTracking : public Method {
 public:
  void adapt(Block& block) override {
    const Buffer y = Tracker::follow(block);
    block.update_along(y);
    block.mix({block.x}, {y});
  }

  MethodRequirements requirements() const override { return {.column_sums = true}; }

  void view_changed(Block& block) override { Tracker::restart(block); }
};

/// x <- sum of w_j x_j + U(x, y); y as in gradient tracking.
class Diging : public Method {
 public:
  void adapt(Block& block) override {
    const Buffer y = Tracker::follow(block);
    const Buffer before = block.state("x");
    block.combine(before, {{block.x, 1}});
    block.update_along(y);
    block.combine(block.x, {{block.x, 1}, {before, -1}});
    block.mix({before}, {y});
  }

  void combine(Block& block) override { block.combine(block.x, {{block.state("x"), 1}, {block.x, 1}}); }

  MethodRequirements requirements() const override { return {.column_sums = true}; }

  void view_changed(Block& block) override { Tracker::restart(block); }
};

}  // namespace

MethodFamily gradient_tracking() {
  return {"gradient-tracking",
          "exact on heterogeneous data: a second block follows the flock's mean gradient",
          {},
          [](const Parameters&) { return std::make_shared<GradientTracking>(); }};
}

MethodFamily diging() {
  return {"diging",
          "gradient tracking that combines before it adapts: exact, also on directed and changing graphs",
          {},
          [](const Parameters&) { return std::make_shared<Diging>(); }};
}

}  // namespace starling::method::family

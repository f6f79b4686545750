#include "starling/method/family/list.h"
#include "starling/method/family/tracker.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// x <- sum of w_j (x_j + U(x_j, y_j)); y <- sum of w_j y_j + g_new - g_old. Exact on heterogeneous data,
/// also on directed and changing graphs.
class GradientTracking : public Method {
 public:
  void adapt(Block& block) override {
    const MutableBlock y = Tracker::follow(block);
    block.update_along(y);
    block.mix({block.x}, {y});
  }

  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    require_column_sums(schedule, "gradient-tracking");
  }

  void view_changed(Block& block) override { Tracker::restart(block); }
};

/// x <- sum of w_j x_j + U(x, y); y as above.
class Diging : public Method {
 public:
  void adapt(Block& block) override {
    const MutableBlock y = Tracker::follow(block);
    const MutableBlock before = block.state("x");
    const Term own{block.x.data, 1};
    starling::combine(block.dtype(), before.data, {&own, 1}, block.count());
    block.update_along(y);
    const Term change[] = {{block.x.data, 1}, {before.data, -1}};
    starling::combine(block.dtype(), block.x.data, change, block.count());
    block.mix({before}, {y});
  }

  void combine(Block& block) override {
    const Term next[] = {{block.state("x").data, 1}, {block.x.data, 1}};
    starling::combine(block.dtype(), block.x.data, next, block.count());
  }

  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    require_column_sums(schedule, "diging");
  }

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

}  // namespace starling::methods

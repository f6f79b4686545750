#include <cstring>

#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// y follows the flock's mean gradient: y <- sum of w_j y_j + g_new - g_old, x <- sum of w_j (x_j + U(x_j,
/// y_j)). Exact on heterogeneous data, also on directed and changing graphs.
class GradientTracking : public Method {
 public:
  void adapt(Block& block) override {
    const MutableBlock y = block.state("y");
    const MutableBlock old = block.state("old gradient");
    const auto begun = block.numbers("begun");
    // A step without a gradient is one whose gradient has not changed: what lies there may not even be
    // numbers.
    const Term now = block.skipped ? Term{old.data, 1} : Term{block.gradient.data, block.gradient_scale};
    if (begun[0] == 0) {
      starling::combine(block.dtype(), y.data, {&now, 1}, block.count());
    } else if (!block.skipped) {
      const Term followed[] = {{y.data, 1}, now, {old.data, -1}};
      starling::combine(block.dtype(), y.data, followed, block.count());
    }
    if (!block.skipped) starling::combine(block.dtype(), old.data, {&now, 1}, block.count());
    begun[0] = 1;
    block.gradient_scale = 1;
    block.activate();
    block.update_along(y);
    block.mix({block.x, y});
  }

  // What the dead held is lost: tracking restarts with y = g.
  void view_changed(Block& block) override { block.numbers("begun")[0] = 0; }
};

}  // namespace

MethodFamily gradient_tracking() {
  return {"gradient-tracking",
          "exact on heterogeneous data: a second block follows the flock's mean gradient",
          {},
          [](const Parameters&) { return std::make_shared<GradientTracking>(); }};
}

}  // namespace starling::methods

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
    // An overflow times nothing is no number.
    if (block.skipped) std::memset(block.gradient.data, 0, block.count() * size_of(block.dtype()));
    const double scale = block.gradient_scale;
    // A step without a gradient is one whose gradient has not changed.
    if (!block.skipped || begun[0] == 0) {
      const Term now{block.gradient.data, scale};
      const Term followed[] = {{y.data, begun[0]}, now, {old.data, -begun[0]}};
      starling::combine(block.dtype(), y.data, followed, block.count());
      starling::combine(block.dtype(), old.data, {&now, 1}, block.count());
    }
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

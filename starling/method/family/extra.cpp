#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::method::family {
namespace {

/// x <- x + e + D + U(x, g), D <- D + e / 2 with e = sum of w_j (x_j - x): EXTRA with (I + W) / 2, in a form
/// whose rounding errors do not accumulate. The differences need no gradient and are exchanged while it is
/// computed.
class Extra : public Method {
 public:
  void begin(Block& block) override { block.neighbors().differences({block.x, block.state("e"), 0}); }

  void adapt(Block& block) override {
    const Buffer e = block.state("e");
    const Buffer correction = block.state("correction");
    block.update();
    block.combine(block.x, {{block.x, 1}, {e, 1}, {correction, 1}});
    block.combine(correction, {{correction, 1}, {e, 0.5}});
  }

  void view_changed(Block& block) override { block.zero(block.state("correction")); }
  MethodRequirements requirements() const override { return {.schedule = ScheduleKind::static_symmetric}; }
};

}  // namespace

MethodFamily extra() {
  return {"extra",
          "exact on heterogeneous data: corrects x by the sum of all earlier mixing steps; fixed symmetric "
          "weights",
          {},
          [](const Parameters&) { return std::make_shared<Extra>(); }};
}

}  // namespace starling::method::family

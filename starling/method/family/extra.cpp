#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// x <- x + e + D + U(x, g), D <- D + e / 2 with e = sum of w_j (x_j - x): EXTRA with (I + W) / 2, in a form
/// whose rounding does not add up. The differences need no gradient, and travel while it is computed.
class Extra : public Method {
 public:
  void begin(Block& block) override {
    const MutableBlock e = block.state("e");
    block.channel->differences({block.x, e.data, 0});
  }

  void adapt(Block& block) override {
    const MutableBlock e = block.state("e");
    const MutableBlock correction = block.state("correction");
    block.update();
    const Term next[] = {{block.x.data, 1}, {e.data, 1}, {correction.data, 1}};
    starling::combine(block.dtype(), block.x.data, next, block.count());
    const Term summed[] = {{correction.data, 1}, {e.data, 0.5}};
    starling::combine(block.dtype(), correction.data, summed, block.count());
  }

  void view_changed(Block& block) override { forget(block.state("correction")); }
  void check(const Schedule& schedule) const override { require_fixed_symmetric(schedule, "extra"); }
};

}  // namespace

MethodFamily extra() {
  return {
      "extra",
      "exact on heterogeneous data: corrects x by what mixing has changed so far; fixed symmetric weights",
      {},
      [](const Parameters&) { return std::make_shared<Extra>(); }};
}

}  // namespace starling::methods

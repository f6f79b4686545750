#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// x' = W(x + U(x, g + mu (mu m + g))); m <- mu m + (1 - mu) (x - x') / lr: a momentum that follows the
/// flock's path instead of the rank's own. It reduces the bias of heterogeneous data but does not remove it.
class QuasiGlobalMomentum : public Method {
 public:
  explicit QuasiGlobalMomentum(double mu) : mu_(mu) {}

  void adapt(Block& block) override {
    const Buffer before = block.state("before");
    block.copy(before, block.x);
    const Buffer direction = block.state("direction");
    if (!block.skipped)
      block.combine(direction, {{block.gradient, block.gradient_scale * (1 + mu_)},
                                {block.state("momentum"), mu_ * mu_}});
    block.update_along(direction);
    block.mix(block.x);
  }

  void combine(Block& block) override {
    const Buffer momentum = block.state("momentum");
    const Buffer before = block.state("before");
    for (const Segment& segment : block.segments) {
      const double lr = (*block.hypers)[segment.group].lr;
      if (lr == 0) continue;  // x has not moved
      const Buffer m = part_of(momentum, segment);
      block.combine(m, {{m, mu_},
                        {part_of(before, segment), (1 - mu_) / lr},
                        {part_of(block.x, segment), -(1 - mu_) / lr}});
    }
  }

  MethodRequirements requirements() const override {
    return {.optimizer = "sgd", .optimizer_because = "it has its own momentum (mu)"};
  }

 private:
  double mu_;
};

}  // namespace

MethodFamily quasi_global_momentum() {
  return {"quasi-global-momentum",
          "DSGD with a momentum that follows the flock's path: reduces bias on heterogeneous data",
          {{"mu", "0.9", "momentum, from 0 to below 1"}},
          [](const Parameters& given) {
            return std::make_shared<QuasiGlobalMomentum>(given.number("mu", 0, 0.999999));
          }};
}

}  // namespace starling::method::family

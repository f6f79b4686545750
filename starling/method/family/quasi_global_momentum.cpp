#include "starling/kernel/copy.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// x' = W(x + U(x, g + mu (mu m + g))); m <- mu m + (1 - mu) (x - x') / lr: a momentum that follows the
/// flock's path instead of the rank's own. It reduces the bias of heterogeneous data; exact it is not.
class QuasiGlobalMomentum : public Method {
 public:
  explicit QuasiGlobalMomentum(double mu) : mu_(mu) {}

  void adapt(Block& block) override {
    const MutableBlock before = block.state("before");
    copy_bytes(before.data, block.x.data, block.count() * size_of(block.dtype()));
    const MutableBlock direction = block.state("direction");
    const Term terms[] = {{block.gradient.data, block.gradient_scale * (1 + mu_)},
                          {block.state("momentum").data, mu_ * mu_}};
    if (!block.skipped) starling::combine(block.dtype(), direction.data, terms, block.count());
    block.update_along(direction);
    block.mix(block.x);
  }

  void combine(Block& block) override {
    const MutableBlock momentum = block.state("momentum");
    const MutableBlock before = block.state("before");
    const std::size_t element = size_of(block.dtype());
    for (const Segment& segment : block.segments) {
      const double lr = (*block.hypers)[segment.group].lr;
      if (lr == 0) continue;  // nothing has moved
      const auto part = [&](MutableBlock whole) {
        return static_cast<std::byte*>(whole.data) + segment.begin * element;
      };
      const Term terms[] = {
          {part(momentum), mu_}, {part(before), (1 - mu_) / lr}, {part(block.x), -(1 - mu_) / lr}};
      starling::combine(block.dtype(), part(momentum), terms, segment.count);
    }
  }

  std::string needs_optimizer() const override { return "sgd"; }
  std::string optimizer_because() const override { return "it has a momentum of its own (mu)"; }

 private:
  double mu_;
};

}  // namespace

MethodFamily quasi_global_momentum() {
  return {"quasi-global-momentum",
          "DSGD with a momentum that follows the flock's path: less bias on heterogeneous data, not none",
          {{"mu", "0.9", "momentum, from 0 to below 1"}},
          [](const Parameters& given) {
            return std::make_shared<QuasiGlobalMomentum>(given.number("mu", 0, 0.999999));
          }};
}

}  // namespace starling::methods

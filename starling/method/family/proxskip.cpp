#include "starling/base/random.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// ProxSkip (Scaffnew): x^ = x + U(x, g) + H; with probability p, x <- the average of x^ and H <- H + p (x -
/// x^), else x <- x^, with H = lr h. The average is the mean where the schedule takes the mean of everybody,
/// else one mixing with (I + W) / 2. All ranks draw the same bit.
class ProxSkip : public Method {
 public:
  ProxSkip(double p, std::uint64_t seed) : p_(p), seed_(seed) {}

  void adapt(Block& block) override {
    block.update();
    const Term corrected[] = {{block.x.data, 1}, {block.state("H").data, 1}};
    starling::combine(block.dtype(), block.x.data, corrected, block.count());
    if (Random(seed_, static_cast<std::uint64_t>(block.step), stream::kProxSkip).uniform() < p_)
      block.channel->differences({block.x, block.state("e").data, 0});
  }

  void combine(Block& block) override {
    const double share =
        block.channel->schedule()->exchange(0, 0).group.size() == block.channel->size() ? 1 : 0.5;
    const MutableBlock e = block.state("e");
    const MutableBlock h = block.state("H");
    const Term x[] = {{block.x.data, 1}, {e.data, share}};
    starling::combine(block.dtype(), block.x.data, x, block.count());
    const Term corrections[] = {{h.data, 1}, {e.data, p_ * share}};
    starling::combine(block.dtype(), h.data, corrections, block.count());
  }

  void view_changed(Block& block) override { forget(block.state("H")); }
  std::string needs_optimizer() const override { return "sgd"; }
  std::string optimizer_because() const override {
    return "its corrections take every local step for -lr times the gradient";
  }
  void check(const Schedule& schedule) const override { require_fixed_symmetric(schedule, "proxskip"); }

 private:
  double p_;
  std::uint64_t seed_;
};

}  // namespace

MethodFamily proxskip() {
  return {"proxskip",
          "local steps with a correction, and an average with probability p: exact and lazy (Scaffnew)",
          {{"p", "0.1", "probability that a step ends in an average"},
           {"seed", "0", "of the bits, which all ranks share"}},
          [](const Parameters& given) {
            return std::make_shared<ProxSkip>(given.number("p", 1e-6, 1), given.seed());
          }};
}

}  // namespace starling::methods

#include "starling/base/random.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::method::family {
namespace {

/// ProxSkip (Scaffnew): x^ = x + U(x, g) + H; with probability p, x <- the average of x^ and H <- H + p (x -
/// x^), else x <- x^, with H = lr h. The average is the mean if the schedule takes the mean of all ranks,
/// else one mixing with (I + W) / 2. All ranks draw the same bit.
class ProxSkip : public Method {
 public:
  ProxSkip(double p, std::uint64_t seed) : p_(p), seed_(seed) {}

  void adapt(Block& block) override {
    block.update();
    block.combine(block.x, {{block.x, 1}, {block.state("H"), 1}});
    if (Random(seed_, static_cast<std::uint64_t>(block.step), stream::kProxSkip).uniform() < p_)
      block.neighbors().differences({block.x, block.state("e"), 0});
  }

  void combine(Block& block) override {
    const double share =
        block.channel->schedule()->exchange(0, 0).group.size() == block.channel->size() ? 1 : 0.5;
    const Buffer e = block.state("e");
    const Buffer h = block.state("H");
    block.combine(block.x, {{block.x, 1}, {e, share}});
    block.combine(h, {{h, 1}, {e, p_ * share}});
  }

  void view_changed(Block& block) override { block.zero(block.state("H")); }
  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::static_symmetric,
            .optimizer = "sgd",
            .optimizer_because = "its corrections take every local step for -lr times the gradient"};
  }

 private:
  double p_;
  std::uint64_t seed_;
};

}  // namespace

MethodFamily proxskip() {
  return {"proxskip",
          "local steps with a correction, and an average with probability p: exact with little communication "
          "(Scaffnew)",
          {{"p", "0.1", "probability that a step ends in an average"},
           {"seed", "0", "seed for the draws, which all ranks share"}},
          [](const Parameters& given) {
            return std::make_shared<ProxSkip>(given.number("p", 1e-6, 1), given.seed());
          }};
}

}  // namespace starling::method::family

#include <cmath>

#include "starling/codec/registry.h"
#include "starling/method/family/compressed_average.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// QAdam: Adam on the mean gradient for `warmup` steps; then the second moment is frozen, and the first
/// moments, each updated with its own rank's gradient, are averaged through a one-byte codec. Both bias
/// corrections continue with the step.
class QAdam : public Method {
 public:
  explicit QAdam(Step warmup)
      : warmup_(warmup),
        average_({make_codec("uint8"), CompressedAverage::Algorithm::scatter_gather, false, 0}) {}

  void gradient(Block& block) override {
    if (warms_up(block)) {
      const Buffer contributors = contributors_of(block);
      write_number(contributors, block.skipped ? 0 : 1);
      if (block.skipped) block.zero(block.gradient);
      block.collective().reduce(pieces_of(std::vector<Buffer>{block.gradient, contributors}), Reduction::sum);
      return;
    }
    if (!block.skipped) take_up_gradient(block, false);
    average_.start(block, block.state("m"), !block.skipped);
  }

  void gradient_done(Block& block) override {
    double contributors = 0;
    if (warms_up(block)) {
      contributors = read_number(contributors_of(block));
      if (contributors > 0) block.arithmetic().scale(block.gradient, 1 / contributors);
    } else {
      if (!average_.proceed(block, block.state("m"))) return;
      contributors = static_cast<double>(average_.contributors(block));
    }
    block.skipped = contributors == 0;
    block.activate();
  }

  void adapt(Block& block) override {
    if (block.skipped) return;
    const auto t = block.numbers("t");
    t[0] += 1;
    if (warms_up(block)) take_up_gradient(block, true);
    for (const Segment& segment : block.segments) {
      const Hyper& hyper = (*block.hypers)[segment.group];
      const MomentStepRule rule{hyper.lr, hyper.decoupled ? hyper.weight_decay : 0, hyper.eps,
                                1 - std::pow(hyper.beta1, t[0]), 1 - std::pow(hyper.beta2, t[0])};
      block.arithmetic().moment_step(rule, part_of(block.x, segment), part_of(block.state("m"), segment),
                                     part_of(block.state("v"), segment));
    }
  }

  // Gradients count as sent, not averaged: messages contain moments, which later changes of the gradient
  // would not reach.
  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .optimizer = "adam",
            .exact_messages_because = "its codec makes the messages",
            .gradient = GradientUse::sent};
  }

 private:
  bool warms_up(const Block& block) const { return block.step < warmup_; }
  static Buffer contributors_of(Block& block) { return block.host_state("contributors", block.dtype(), 1); }

  // Updates the first moment with the gradient, or both moments.
  static void take_up_gradient(Block& block, bool both) {
    for (const Segment& segment : block.segments) {
      const Hyper& hyper = (*block.hypers)[segment.group];
      const MomentRule rule{hyper.beta1, hyper.beta2, block.gradient_scale,
                            hyper.decoupled ? 0 : hyper.weight_decay};
      block.arithmetic().moments(rule, part_of(block.x, segment), part_of(block.gradient, segment),
                                 part_of(block.state("m"), segment),
                                 both ? part_of(block.state("v"), segment) : Buffer());
    }
  }

  Step warmup_;
  CompressedAverage average_;
};

}  // namespace

MethodFamily qadam() {
  return {"qadam",
          "Adam on mean gradients for a while, then with its moments averaged in bytes",
          {{"warmup", "100", "steps with exact averages, in which the second moment is determined"}},
          [](const Parameters& given) {
            return std::make_shared<QAdam>(given.integer("warmup", 1, 1'000'000'000));
          }};
}

}  // namespace starling::method::family

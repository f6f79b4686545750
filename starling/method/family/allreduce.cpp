#include <cmath>

#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// The centralized baseline: every rank steps along the mean gradient of the ranks that have one.
class Allreduce : public Method {
 public:
  void gradient(Block& block) override {
    const Buffer contributors = contributors_of(block);
    write_number(contributors, block.skipped ? 0 : 1);
    if (block.skipped) block.zero(block.gradient);
    block.collective().reduce(pieces_of(std::vector<Buffer>{block.gradient, contributors}),
                              Reduction::average);
  }

  // The reduced gradient is the mean over all ranks; dividing by the share of ranks that had a gradient makes
  // it theirs.
  void gradient_done(Block& block) override {
    const double share = share_of(block);
    block.skipped = share == 0;
    if (!block.skipped) block.gradient_scale /= share;
    block.activate();
  }

  void adapt(Block& block) override { block.update(); }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .no_int8_because = "gradients are summed in transit; the method bytegrad averages them in bytes",
            .gradient = GradientUse::averaged};
  }

 private:
  static Buffer contributors_of(Block& block) { return block.host_state("contributors", block.dtype(), 1); }
  // A fraction k / n, perhaps rounded to 16 bits.
  static double share_of(Block& block) {
    constexpr double kRounding = 1.0 / 256;
    const double share = read_number(contributors_of(block));
    const double n = block.channel->size();
    const double exact = std::round(share * n) / n;
    return std::abs(exact - share) <= kRounding * share ? exact : share;
  }
};

}  // namespace

MethodFamily allreduce() {
  return {"allreduce",
          "all ranks step along the mean gradient: the centralized baseline (DDP, Horovod)",
          {},
          [](const Parameters&) { return std::make_shared<Allreduce>(); }};
}

}  // namespace starling::method::family

#include <cstring>

#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// The centralized baseline: everybody steps along the mean gradient of those that had one.
class Allreduce : public Method {
 public:
  void gradient(Block& block) override {
    const MutableBlock contributors = block.scalar("contributors");
    write_number(contributors, block.skipped ? 0 : 1);
    if (block.skipped) std::memset(block.gradient.data, 0, block.count() * size_of(block.dtype()));
    block.channel->reduce(pieces_of(std::vector<MutableBlock>{block.gradient, contributors}), Reduction::sum);
  }

  void gradient_done(Block& block) override {
    const double contributors = read_number(block.scalar("contributors"));
    block.skipped = contributors == 0;
    if (!block.skipped) block.gradient_scale /= contributors;
    block.activate();
  }

  void adapt(Block& block) override { block.update(); }

  bool sends_gradients() const override { return true; }
  std::string no_int8_because() const override {
    return "gradients are summed on their way; the method bytegrad averages them in bytes";
  }
  bool needs_schedule() const override { return false; }
};

}  // namespace

MethodFamily allreduce() {
  return {"allreduce",
          "everybody steps along the mean gradient: the centralized baseline (DDP, Horovod)",
          {},
          [](const Parameters&) { return std::make_shared<Allreduce>(); }};
}

}  // namespace starling::methods

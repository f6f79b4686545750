#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

constexpr Rank kServer = 0;

/// Every rank sends its gradient to one rank, which steps and sends the model back: the classic baseline.
class ParameterServer : public Method {
 public:
  void gradient(Block& block) override {
    const Rank size = block.channel->size();
    const auto had_gradient = block.numbers("had gradient", static_cast<std::size_t>(size));
    had_gradient[0] = block.skipped ? 0 : 1;
    if (block.channel->rank() != kServer) {
      block.collective().send(message(block.gradient, had_gradient.data()), kServer, "gradient");
      return;
    }
    for (Rank rank = 1; rank < size; ++rank) {
      had_gradient[static_cast<std::size_t>(rank)] = 0;  // dead ranks send nothing
      block.collective().receive(message(gradient_of(block, rank), had_gradient.data() + rank), rank,
                                 "gradient");
    }
  }

  // From here to the update the server's gradient is the mean over all ranks, also for clipping.
  void gradient_done(Block& block) override {
    if (block.channel->rank() != kServer) return;
    block.copy(own_gradient(block), block.gradient);
    gather(block);
  }

  void adapt(Block& block) override {
    if (block.channel->rank() == kServer) {
      block.update();
      block.copy(block.gradient, own_gradient(block));
    }
    block.collective().broadcast({Block::in_place(block.x)}, kServer);
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .exact_messages_because = "its messages are sent unchanged",
            .gradient = GradientUse::sent};
  }

 private:
  static Buffer gradient_of(Block& block, Rank rank) {
    return block.state("gradient of " + std::to_string(rank));
  }
  static Buffer own_gradient(Block& block) { return block.state("own gradient"); }
  static Pieces message(Buffer gradient, double* had_gradient) {
    return pieces_of(std::vector<Buffer>{gradient, {DType::float64, had_gradient, 1}});
  }

  static void gather(Block& block) {
    const Rank size = block.channel->size();
    const auto had_gradient = block.numbers("had gradient", static_cast<std::size_t>(size));
    if (had_gradient[0] == 0) block.zero(block.gradient);
    double contributors = had_gradient[0];
    for (Rank rank = 1; rank < size; ++rank) {
      if (had_gradient[static_cast<std::size_t>(rank)] == 0) continue;
      ++contributors;
      block.add(block.gradient, gradient_of(block, rank));
    }
    block.skipped = contributors == 0;
    if (!block.skipped) block.gradient_scale /= contributors;
    block.activate();
  }
};

}  // namespace

MethodFamily parameter_server() {
  return {"parameter-server",
          "rank 0 gathers the gradients, steps and sends the model back: the classic baseline",
          {},
          [](const Parameters&) { return std::make_shared<ParameterServer>(); }};
}

}  // namespace starling::method::family

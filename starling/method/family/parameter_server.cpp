#include <cstring>

#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

constexpr Rank kServer = 0;

/// Everybody sends its gradient to one rank, which steps and sends the model back: the oldest baseline.
class ParameterServer : public Method {
 public:
  void gradient(Block& block) override {
    const Rank size = block.channel->size();
    const auto had_gradient = block.numbers("had gradient", static_cast<std::size_t>(size));
    had_gradient[0] = block.skipped ? 0 : 1;
    if (block.channel->rank() != kServer) {
      block.channel->send(message(block.gradient, had_gradient.data()), kServer, "gradient");
      return;
    }
    for (Rank rank = 1; rank < size; ++rank) {
      had_gradient[static_cast<std::size_t>(rank)] = 0;  // the dead send nothing
      block.channel->receive(message(gradient_of(block, rank), had_gradient.data() + rank), rank, "gradient");
    }
  }

  // The server's gradient is everybody's until the update, also for clipping.
  void gradient_done(Block& block) override {
    if (block.channel->rank() != kServer) return;
    copy_bytes(own_gradient(block).data, block.gradient.data, block.count() * size_of(block.dtype()));
    gather(block);
  }

  void adapt(Block& block) override {
    if (block.channel->rank() == kServer) {
      block.update();
      copy_bytes(block.gradient.data, own_gradient(block).data, block.count() * size_of(block.dtype()));
    }
    block.channel->broadcast({Block::in_place(block.x)}, kServer);
  }

  bool sends_gradients() const override { return true; }
  bool averages_gradients() const override { return false; }
  bool needs_schedule() const override { return false; }
  std::string exact_messages_because() const override { return "its letters travel as they are"; }

 private:
  static MutableBlock gradient_of(Block& block, Rank rank) {
    return block.state("gradient of " + std::to_string(rank));
  }
  static MutableBlock own_gradient(Block& block) { return block.state("own gradient"); }
  static Pieces message(MutableBlock gradient, double* had_gradient) {
    return pieces_of(std::vector<MutableBlock>{gradient, {DType::float64, had_gradient, 1}});
  }

  static void gather(Block& block) {
    const Rank size = block.channel->size();
    const auto had_gradient = block.numbers("had gradient", static_cast<std::size_t>(size));
    if (had_gradient[0] == 0) std::memset(block.gradient.data, 0, block.count() * size_of(block.dtype()));
    double contributors = had_gradient[0];
    for (Rank rank = 1; rank < size; ++rank) {
      if (had_gradient[static_cast<std::size_t>(rank)] == 0) continue;
      ++contributors;
      starling::reduce(Reduction::sum, block.dtype(), block.gradient.data, gradient_of(block, rank).data,
                       block.count());
    }
    block.skipped = contributors == 0;
    if (!block.skipped) block.gradient_scale /= contributors;
    block.activate();
  }
};

}  // namespace

MethodFamily parameter_server() {
  return {"parameter-server",
          "rank 0 gathers the gradients, steps and sends the model back: the old baseline",
          {},
          [](const Parameters&) { return std::make_shared<ParameterServer>(); }};
}

}  // namespace starling::methods

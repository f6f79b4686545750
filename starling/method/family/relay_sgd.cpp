#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// x <- the average of everybody's latest known x + U, relayed along a tree: exact in the mean on
/// heterogeneous data.
class RelaySgd : public Method {
 public:
  explicit RelaySgd(std::string missing) : missing_(std::move(missing)) {}

  void begin(Block& block) override {
    if (missing_ != "reference") return;
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) block.channel->set_reference(block.x);
    begun[0] = 1;
  }

  void adapt(Block& block) override {
    block.update();
    block.channel->relay(Block::in_place(block.x));
  }

  std::string relay_rule() const override { return missing_; }
  std::string exact_messages_because() const override { return "relayed sums would gather the rounding"; }

 private:
  std::string missing_;
};

}  // namespace

MethodFamily relay_sgd() {
  return {
      "relay-sgd",
      "models are relayed along a tree, so that everybody averages all of them, some a few steps old",
      {{"missing", "counts", "what stands in for blocks that have not arrived: counts, reference or own"}},
      [](const Parameters& given) {
        return std::make_shared<RelaySgd>(given.choice("missing", {"counts", "reference", "own"}));
      }};
}

}  // namespace starling::methods

#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// x <- the average of everybody's latest known x + U, relayed along a tree: exact in the mean on
/// heterogeneous data.
class RelaySgd : public Method {
 public:
  explicit RelaySgd(std::string missing) : missing_(std::move(missing)) {}

  void adapt(Block& block) override {
    block.update();
    block.channel->relay(Block::in_place(block.x));
  }

  std::string relay_rule() const override { return missing_; }

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

#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

constexpr const char* kTrees = "chain, binary-tree, star or double-binary-trees";

/// x <- the average of everybody's latest known x + U, relayed along a tree: exact in the mean on
/// heterogeneous data.
class RelaySgd : public Method {
 public:
  RelaySgd(std::string missing, bool overlap) : rule_{std::move(missing), overlap} {}

  void begin(Block& block) override {
    if (rule_.missing != "reference") return;
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) block.channel->set_reference(block.x);
    begun[0] = 1;
  }

  void adapt(Block& block) override {
    block.update();
    block.channel->relay(Block::in_place(block.x));
  }

  RelayRule relay_rule() const override { return rule_; }
  std::string no_losses_because() const override {
    if (rule_.missing != "reference") return {};
    return "a reference stands in for blocks that have not come yet, not for lost ones; use "
           "relay-sgd(missing=counts) or relay-sgd(missing=own)";
  }
  std::string works_on() const override { return kTrees; }
  std::string exact_messages_because() const override { return "relayed sums would gather the rounding"; }

 private:
  RelayRule rule_;
};

/// x <- x + the relayed sum of everybody's updates, divided by their number: needs equal starts.
class RelaySumGrad : public Method {
 public:
  explicit RelaySumGrad(bool overlap) : overlap_(overlap) {}

  void adapt(Block& block) override {
    const MutableBlock before = block.state("before");
    copy_bytes(before.data, block.x.data, block.count() * size_of(block.dtype()));
    block.update();
    const MutableBlock change = block.state("change");
    const Term difference[] = {{block.x.data, 1}, {before.data, -1}};
    starling::combine(block.dtype(), change.data, difference, block.count());
    block.channel->relay(Block::in_place(change));
  }

  void combine(Block& block) override {
    const Term next[] = {{block.state("before").data, 1}, {block.state("change").data, 1}};
    starling::combine(block.dtype(), block.x.data, next, block.count());
  }

  RelayRule relay_rule() const override { return {"zero", overlap_}; }
  std::string works_on() const override { return kTrees; }
  std::string exact_messages_because() const override { return "relayed sums would gather the rounding"; }

 private:
  bool overlap_;
};

const Parameter kOverlap{"overlap", "false",
                         "use messages one step late, so that they travel during the computation"};

}  // namespace

MethodFamily relay_sgd() {
  return {"relay-sgd",
          "models are relayed along a tree, so that everybody averages all of them, some a few steps old",
          {{"missing", "counts", "what stands in for blocks that have not arrived: counts, reference or own"},
           kOverlap},
          [](const Parameters& given) {
            return std::make_shared<RelaySgd>(given.choice("missing", {"counts", "reference", "own"}),
                                              given.yes("overlap"));
          }};
}

MethodFamily relay_sum_grad() {
  return {"relay-sum-grad",
          "updates instead of models are relayed along a tree: everybody starts from the same model",
          {kOverlap},
          [](const Parameters& given) { return std::make_shared<RelaySumGrad>(given.yes("overlap")); }};
}

}  // namespace starling::methods

#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

constexpr const char* kExact = "relayed sums would gather the rounding";

/// x <- the average of all ranks' latest known x + U, relayed along a tree: exact in the mean on
/// heterogeneous data.
class RelaySgd : public Method {
 public:
  RelaySgd(std::string missing, bool overlap) : rule_{std::move(missing), overlap} {}

  void begin(Block& block) override {
    if (rule_.missing != "reference") return;
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) block.relay().set_reference(block.x);
    begun[0] = 1;
  }

  void adapt(Block& block) override {
    block.update();
    block.relay().start(Block::in_place(block.x));
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::tree,
            .exact_messages_because = kExact,
            .no_losses_because = rule_.missing != "reference"
                                     ? ""
                                     : "a reference replaces blocks that have not arrived yet, not lost "
                                       "ones; use relay-sgd(missing=counts) or relay-sgd(missing=own)",
            .relay = rule_};
  }

 private:
  RelayRule rule_;
};

/// x <- x + the relayed sum of all ranks' updates, divided by their number; requires equal starts.
class RelaySumGrad : public Method {
 public:
  explicit RelaySumGrad(bool overlap) : overlap_(overlap) {}

  void adapt(Block& block) override {
    const Buffer before = block.state("before");
    block.copy(before, block.x);
    block.update();
    const Buffer change = block.state("change");
    block.combine(change, {{block.x, 1}, {before, -1}});
    block.relay().start(Block::in_place(change));
  }

  void combine(Block& block) override {
    block.combine(block.x, {{block.state("before"), 1}, {block.state("change"), 1}});
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::tree, .exact_messages_because = kExact, .relay = {"zero", overlap_}};
  }

 private:
  bool overlap_;
};

const Parameter kOverlap{"overlap", "false",
                         "use messages one step late, so that they are sent during the computation"};

}  // namespace

MethodFamily relay_sgd() {
  return {"relay-sgd",
          "models are relayed along a tree: each rank averages all of them, some a few steps old",
          {{"missing", "counts", "what replaces blocks that have not arrived: counts, reference or own"},
           kOverlap},
          [](const Parameters& given) {
            return std::make_shared<RelaySgd>(given.choice("missing", {"counts", "reference", "own"}),
                                              given.yes("overlap"));
          }};
}

MethodFamily relay_sum_grad() {
  return {"relay-sum-grad",
          "updates instead of models are relayed along a tree; all ranks start from the same model",
          {kOverlap},
          [](const Parameters& given) { return std::make_shared<RelaySumGrad>(given.yes("overlap")); }};
}

}  // namespace starling::method::family

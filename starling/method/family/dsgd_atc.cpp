#include <fmt/format.h>

#include "starling/method/family/list.h"
#include "starling/method/method.h"

namespace starling::method::family {
namespace {

// CECA: the gradient of a round is taken at the block that the round sends: a if its digit is above 0.
bool sends_a(const Exchange& exchange) {
  for (const Destination& destination : exchange.destinations)
    if (destination.lane == Lane::a) return true;
  return exchange.destinations.empty();
}

/// Adapt, then combine: x <- sum of w_j (x_j + U_j). On a two-block schedule (CECA) both blocks get the
/// increment, and x is the block at which the gradient is taken.
class DsgdAtc : public Method {
 public:
  void adapt(Block& block) override;
  void combine(Block& block) override;
  void x_replaced(Block& block) override;
  Buffer model(Block& block) const override;
  MethodRequirements requirements() const override { return {.two_block_schedules = true}; }

 private:
  void adapt_two(Block& block);
};

void DsgdAtc::adapt(Block& block) {
  if (block.channel->schedule()->mixing() == Mixing::two_block)
    adapt_two(block);
  else
    block.update_and_mix();
}

// x is the block at which the gradient was taken, `other` the other one; flags: begun, x is b.
void DsgdAtc::adapt_two(Block& block) {
  const Buffer other = block.state("other");
  const auto flags = block.numbers("ceca", 2);
  if (flags[0] == 0) {
    block.copy(other, block.x);
    flags[0] = 1;
  }
  // other += U, where U is the change that the update made to x.
  const Buffer before = block.state("before");
  block.copy(before, block.x);
  block.update();
  block.combine(other, {{other, 1}, {block.x, 1}, {before, -1}});
  const bool x_is_b = flags[1] != 0;
  block.mix({x_is_b ? other : block.x, x_is_b ? block.x : other});
}

void DsgdAtc::combine(Block& block) {
  if (block.channel->schedule()->mixing() != Mixing::two_block) return;
  const auto flags = block.numbers("ceca", 2);
  const bool evaluate_b = !sends_a(block.neighbors().next());
  if (evaluate_b != (flags[1] != 0)) {
    block.arithmetic().swap(block.x, block.state("other"));
    flags[1] = evaluate_b ? 1 : 0;
  }
}

void DsgdAtc::x_replaced(Block& block) {
  if (block.channel->schedule()->mixing() != Mixing::two_block) return;
  block.copy(block.state("other"), block.x);
}

Buffer DsgdAtc::model(Block& block) const {
  const SchedulePtr schedule = block.channel->schedule();
  const bool x_is_b = schedule->mixing() == Mixing::two_block && block.numbers("ceca", 2)[1] != 0;
  return x_is_b ? block.state("other") : block.x;
}

// dsgd-atc that requires a certain kind of schedule.

class GossipPga : public DsgdAtc {
 public:
  explicit GossipPga(Step h) : h_(h) {}
  std::string topology(const std::string& asked, const MethodSetting&) const override {
    return fmt::format("periodic({}, h={})", asked, h_);
  }

 private:
  Step h_;
};

class Hierarchical : public DsgdAtc {
 public:
  std::string topology(const std::string& asked, const MethodSetting& setting) const override {
    return fmt::format("hierarchical(outer={}, local={})", asked, setting.ranks_per_machine);
  }
};

}  // namespace

MethodFamily dsgd_atc() {
  return {"dsgd-atc",
          "adapt, then combine: neighbors' updated models are averaged; the only method for ceca",
          {},
          [](const Parameters&) { return std::make_shared<DsgdAtc>(); }};
}

MethodFamily gossip_pga() {
  return {"gossip-pga",
          "dsgd-atc on periodic(h=): every h-th step takes the global mean instead",
          {{"h", "16", "steps from one global mean to the next"}},
          [](const Parameters& given) {
            return std::make_shared<GossipPga>(given.integer("h", 1, 1'000'000'000));
          }};
}

MethodFamily hierarchical() {
  return {"hierarchical",
          "dsgd-atc on hierarchical(outer=): the mean within a machine, neighbors between machines",
          {},
          [](const Parameters&) { return std::make_shared<Hierarchical>(); }};
}

}  // namespace starling::method::family

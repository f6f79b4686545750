#include "starling/base/random.h"
#include "starling/method/family/asynchronous.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// AD-PSGD, asynchronous pair gossip: the model is in a window that other ranks change, too. After each step
/// a rank and a randomly drawn neighbor average their models, whatever the neighbor is doing. The flock's
/// mean is kept whatever the delays.
class AdPsgd : public Asynchronous {
 public:
  AdPsgd(std::optional<Step> staleness, std::uint64_t seed) : Asynchronous(staleness), seed_(seed) {}

  void adapt(Block& block) override {
    const Buffer change = block.state("change");
    block.combine(change, {{block.x, -1}});
    block.update();
    block.combine(change, {{block.x, 1}, {change, 1}});
    publish_step(block);
    OneSided& window = window_of(block);
    window.add(change);
    window.load(block.x);
    std::vector<Rank> neighbors = window.destinations();
    std::erase_if(neighbors, [&](Rank neighbor) { return !window.alive(neighbor); });
    if (!neighbors.empty()) {
      Random random(seed_ ^ (static_cast<std::uint64_t>(block.channel->rank()) << 32),
                    static_cast<std::uint64_t>(block.step), stream::kPairGossip);
      window.average_with(neighbors[random.below(static_cast<std::uint32_t>(neighbors.size()))], block.x, 0.5,
                          change);
      block.combine(change, {{change, -1}});
      window.add(change);
      window.load(block.x);
    }
    await_slower_ranks(block);
  }

  void x_replaced(Block& block) override { block.numbers("in window")[0] = 0; }
  void settle(Block& block) override {
    Asynchronous::settle(block);
    block.numbers("in window")[0] = 0;
  }

  MethodRequirements requirements() const override {
    MethodRequirements all = Asynchronous::requirements();
    all.schedule = ScheduleKind::both_directions;
    return all;
  }

 private:
  static OneSided& window_of(Block& block) {
    return block.one_sided().window(block.x, OneSided::Start::shared);
  }
  void prepare(Block& block) override {
    OneSided& window = window_of(block);
    const auto in_window = block.numbers("in window");
    if (in_window[0] == 0) window.store(block.x);
    in_window[0] = 1;
  }
  void collect(Block& block, Step) override { window_of(block).load(block.x); }

  std::uint64_t seed_;
};

}  // namespace

MethodFamily ad_psgd() {
  return {
      "ad-psgd",
      "asynchronous pair gossip: each step averages with one random neighbor, which does not wait",
      {staleness_parameter(), {"seed", "0", "seed for the draws"}},
      [](const Parameters& given) { return std::make_shared<AdPsgd>(staleness_of(given), given.seed()); }};
}

}  // namespace starling::method::family

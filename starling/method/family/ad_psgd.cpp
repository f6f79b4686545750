#include "starling/base/random.h"
#include "starling/method/family/asynchronous.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// AD-PSGD, asynchronous pair gossip: the model lives in a window that others change, too. After its step a
/// rank and a neighbour drawn at random meet half way, whatever the neighbour does meanwhile, and the flock's
/// mean is kept whatever the delays.
class AdPsgd : public Asynchronous {
 public:
  AdPsgd(std::optional<Step> staleness, std::uint64_t seed) : Asynchronous(staleness), seed_(seed) {}

  void adapt(Block& block) override {
    const MutableBlock change = block.state("change");
    const Term before{block.x.data, -1};
    starling::combine(block.dtype(), change.data, {&before, 1}, block.count());
    block.update();
    const Term increment[] = {{block.x.data, 1}, {change.data, 1}};
    starling::combine(block.dtype(), change.data, increment, block.count());
    step_made(block);
    OneSided& window = window_of(block);
    window.add(change.data);
    window.load(block.x.data);
    std::vector<Rank> neighbors = window.destinations();
    std::erase_if(neighbors, [&](Rank neighbor) { return !window.alive(neighbor); });
    if (!neighbors.empty()) {
      Random random(seed_ ^ (static_cast<std::uint64_t>(block.channel->rank()) << 32),
                    static_cast<std::uint64_t>(block.step), stream::kPairGossip);
      window.meet(neighbors[random.below(static_cast<std::uint32_t>(neighbors.size()))], block.x.data, 0.5,
                  change.data);
      const Term back{change.data, -1};
      starling::combine(block.dtype(), change.data, {&back, 1}, block.count());
      window.add(change.data);
      window.load(block.x.data);
    }
    step_told(block);
  }

  void x_replaced(Block& block) override { block.numbers("in window")[0] = 0; }
  void settle(Block& block) override {
    Asynchronous::settle(block);
    block.numbers("in window")[0] = 0;
  }

  std::string works_on() const override { return "ring, torus or complete"; }
  void check(const Schedule& schedule) const override {
    Asynchronous::check(schedule);
    require_both_directions(schedule, name());
  }

 private:
  static OneSided& window_of(Block& block) { return block.channel->window(block.x, OneSided::Start::shared); }
  void prepare(Block& block) override {
    OneSided& window = window_of(block);
    const auto in_window = block.numbers("in window");
    if (in_window[0] == 0) window.store(block.x.data);
    in_window[0] = 1;
  }
  void collect(Block& block, Step) override { window_of(block).load(block.x.data); }
  std::string name() const override { return "ad-psgd"; }

  std::uint64_t seed_;
};

}  // namespace

MethodFamily ad_psgd() {
  return {
      "ad-psgd",
      "asynchronous pair gossip: every step meets one neighbour drawn at random, who need not wait",
      {staleness_parameter(), {"seed", "0", "of the draws"}},
      [](const Parameters& given) { return std::make_shared<AdPsgd>(staleness_of(given), given.seed()); }};
}

}  // namespace starling::methods

#include "starling/base/random.h"
#include "starling/method/family/asynchronous.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// AD-PSGD, asynchronous pair gossip: after its step a rank reads what a neighbour drawn at random has
/// published, goes half of the way to it, and leaves the opposite change with the neighbour, who takes it up
/// when it comes to it. The flock's mean is kept whatever the delays.
class AdPsgd : public Asynchronous {
 public:
  AdPsgd(std::optional<Step> staleness, std::uint64_t seed) : Asynchronous(staleness), seed_(seed) {}

  void adapt(Block& block) override {
    block.update();
    step_made(block);
    OneSided& window = window_of(block);
    const std::vector<Rank> neighbors = window.destinations();
    const MutableBlock change = block.state("change");
    if (neighbors.empty()) return;
    Random random(seed_ ^ static_cast<std::uint64_t>(block.channel->rank()) << 32,
                  static_cast<std::uint64_t>(block.step), stream::kPairGossip);
    const Rank other = neighbors[random.below(static_cast<std::uint32_t>(neighbors.size()))];
    if (window.read(other, change.data)) {
      const Term half[] = {{change.data, 0.5}, {block.x.data, -0.5}};
      starling::combine(block.dtype(), change.data, half, block.count());
      const Term met[] = {{block.x.data, 1}, {change.data, 1}};
      starling::combine(block.dtype(), block.x.data, met, block.count());
      window.accumulate_of(change.data, {{other, -1}});
    }
    step_told(block);
  }

  void check(const Schedule& schedule) const override {
    Asynchronous::check(schedule);
    require_both_directions(schedule, name());
  }

 private:
  static OneSided& window_of(Block& block) { return block.channel->window(block.x, true); }
  void prepare(Block& block) override { window_of(block); }
  void collect(Block& block, Step) override {
    OneSided& window = window_of(block);
    OneSided::Weights ones;
    for (const Rank source : window.sources()) ones[source] = 1;
    window.update(1, ones, true);
  }
  void collected(Block& block) override { window_of(block).publish(); }
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

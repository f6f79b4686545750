#include "starling/method/family/asynchronous.h"
#include "starling/method/family/list.h"
#include "starling/topology/exchange.h"

namespace starling::method::family {
namespace {

/// Push-sum through windows: a rank adds shares of u and p, which sum to one, to the neighbors' slots, and
/// the neighbors collect them at their own pace. Nothing is lost or counted twice, so z = u / p is a weighted
/// average however late messages are. In lock-step this is push-sum, with the sums taken when the next step
/// begins.
class AsyncPushSum : public Asynchronous {
 public:
  using Asynchronous::Asynchronous;

  void adapt(Block& block) override {
    // The update is that of the model, z + U, so u = p z moves by p U: a rank that is far ahead and has given
    // most of its share away does not jump.
    block.update();
    const double p = block.numbers("p", 1, 1)[0];
    block.combine(block.state("u"), {{block.x, p}});
    publish_step(block);
    // The weight that each destination gives to messages of this rank.
    const Rank self = block.channel->rank();
    const Exchange round = round_of(block, block.step);
    OneSided::Weights shares;
    for (const Destination& destination : round.destinations)
      for (const Source& source :
           flattened(block.channel->schedule()->exchange(block.step, destination.rank), destination.rank)
               .sources)
        if (source.rank == self) shares[destination.rank] = source.weight * destination.scale;
    // The rank keeps the shares of dead destinations.
    OneSided& window = window_of(block);
    double kept = round.self_weight;
    std::erase_if(shares, [&](const auto& share) {
      if (window.alive(share.first)) return false;
      kept += share.second;
      return true;
    });
    if (p > kLeastShare) window.accumulate(shares, kept);
    block.numbers("p", 1, 1)[0] = window.p();
    await_slower_ranks(block);
  }

  void x_replaced(Block& block) override {
    block.combine(block.state("u"), {{block.x, block.numbers("p", 1, 1)[0]}});
    block.numbers("begun")[0] = 1;
  }

  MethodRequirements requirements() const override {
    MethodRequirements all = Asynchronous::requirements();
    all.column_sums = true;
    all.push_sum_schedules = true;
    return all;
  }

 private:
  static constexpr double kLeastShare = 1e-3;  // a rank with less keeps it until it receives more
  static OneSided& window_of(Block& block) {
    return block.one_sided().window(block.state("u"), OneSided::Start::empty);
  }

  void prepare(Block& block) override {
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) block.copy(block.state("u"), block.x);
    begun[0] = 1;
    window_of(block).set_p(block.numbers("p", 1, 1)[0]);
  }

  void collect(Block& block, Step) override {
    OneSided& window = window_of(block);
    OneSided::Weights ones;
    for (const Rank source : window.sources()) ones[source] = 1;
    window.update(1, ones, true);
    const double p = window.p();
    block.numbers("p", 1, 1)[0] = p;
    if (!(p > 0)) return;
    block.combine(block.x, {{block.state("u"), 1 / p}});
  }
};

}  // namespace

MethodFamily async_push_sum() {
  return {"async-push-sum",
          "asynchronous push-sum: shares of sums are added to neighbors' windows without waiting",
          {staleness_parameter()},
          [](const Parameters& given) { return std::make_shared<AsyncPushSum>(staleness_of(given)); }};
}

}  // namespace starling::method::family

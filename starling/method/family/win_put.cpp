#include "starling/method/family/asynchronous.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// x <- the weighted average of x and the neighbors' last puts; then x <- x + U, which is put to the
/// neighbors. In lock-step this is dsgd-atc, with the average taken when the next step begins.
class WinPut : public Asynchronous {
 public:
  using Asynchronous::Asynchronous;

  void adapt(Block& block) override {
    block.update();
    publish_step(block);
    OneSided::Weights scales;
    for (const Destination& destination : round_of(block, block.step).destinations)
      if (window(block).alive(destination.rank)) scales[destination.rank] = destination.scale;
    window(block).put(scales, 1);
    await_slower_ranks(block);
  }

 private:
  static OneSided& window(Block& block) { return block.one_sided().window(block.x, OneSided::Start::copies); }
  void prepare(Block& block) override { window(block); }
  void collect(Block& block, Step step) override {
    const Exchange round = round_of(block, step);
    double own = round.self_weight;
    OneSided::Weights weights;
    for (const Source& source : round.sources)
      if (window(block).alive(source.rank))
        weights[source.rank] = source.weight;
      else
        own += source.weight;
    window(block).update(own, weights, false);
  }
};

}  // namespace

MethodFamily win_put() {
  return {"win-put",
          "asynchronous: models are put into neighbors' windows and averaged without waiting",
          {staleness_parameter()},
          [](const Parameters& given) { return std::make_shared<WinPut>(staleness_of(given)); }};
}

}  // namespace starling::method::family

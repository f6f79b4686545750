#include "starling/kernel/copy.h"
#include "starling/method/family/list.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

struct Outer {
  Step h;  // inner steps
  double lr;
  double momentum;
};

/// h steps of the local optimizer, then a Nesterov step along d = x_start - x: averaged over everybody
/// (DiLoCo), or together with x_start over one other rank (NoLoCo). The inner moments stay.
class TwoLevels : public Method {
 public:
  explicit TwoLevels(const Outer& outer) : outer_(outer) {}

  void begin(Block& block) override {
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) copy(block, block.state("start"), block.x);
    begun[0] = 1;
  }

  void adapt(Block& block) override {
    block.update();
    if ((block.step + 1) % outer_.h != 0) return;
    const MutableBlock d = block.state("outer gradient");
    const Term walked[] = {{block.state("start").data, 1}, {block.x.data, -1}};
    starling::combine(block.dtype(), d.data, walked, block.count());
    average(block, d);
  }

  void combine(Block& block) override {
    const MutableBlock start = block.state("start");
    const MutableBlock m = block.state("outer momentum");
    const MutableBlock d = block.state("outer gradient");
    const Term moment[] = {{m.data, outer_.momentum}, {d.data, 1}};
    starling::combine(block.dtype(), m.data, moment, block.count());
    const Term next[] = {{start.data, 1}, {d.data, -outer_.lr}, {m.data, -outer_.lr * outer_.momentum}};
    starling::combine(block.dtype(), block.x.data, next, block.count());
    copy(block, start, block.x);
  }

  void x_replaced(Block& block) override { copy(block, block.state("start"), block.x); }
  std::string exact_messages_because() const override { return "it would round the outer step"; }

 protected:
  virtual void average(Block& block, MutableBlock d) = 0;

 private:
  static void copy(Block& block, MutableBlock to, MutableBlock from) {
    copy_bytes(to.data, from.data, block.count() * size_of(block.dtype()));
  }

  Outer outer_;
};

class DiLoCo : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  bool needs_schedule() const override { return false; }

 private:
  void average(Block& block, MutableBlock d) override {
    block.channel->reduce({Block::in_place(d)}, Reduction::average);
  }
};

class NoLoCo : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  std::string works_on() const override { return "random-matching or base(k=1)"; }
  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    require_matchings(schedule, "noloco");
  }

 private:
  void average(Block& block, MutableBlock d) override { block.mix({d, block.state("start")}); }
};

template <typename Method>
MethodFamily two_levels(const std::string& name, const std::string& summary) {
  return {
      name,
      summary,
      {{"h", "32", "local steps per outer step"},
       {"lr", "0.7", "of the outer step"},
       {"momentum", "0.9", "of the outer step"}},
      [](const Parameters& given) {
        return std::make_shared<Method>(Outer{given.integer("h", 1, 1'000'000'000),
                                              given.number("lr", 0, 100), given.number("momentum", 0, 1)});
      }};
}

}  // namespace

MethodFamily diloco() {
  return two_levels<DiLoCo>("diloco",
                            "h local steps, then an outer Nesterov step along everybody's mean progress");
}

MethodFamily noloco() {
  return two_levels<NoLoCo>("noloco",
                            "diloco without a global average: outer steps are averaged with one other rank");
}

}  // namespace starling::methods

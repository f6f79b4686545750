#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

struct Outer {
  Step h;  // inner steps
  double lr;
  double momentum;
};

/// h steps of the local optimizer, then a Nesterov step along d = x_start - x: averaged over all ranks
/// (DiLoCo), or together with x_start over one other rank (NoLoCo). The local optimizer's moments are kept.
class TwoLevels : public Method {
 public:
  explicit TwoLevels(const Outer& outer) : outer_(outer) {}

  void begin(Block& block) override {
    const auto begun = block.numbers("begun");
    if (begun[0] == 0) block.copy(block.state("start"), block.x);
    begun[0] = 1;
  }

  void adapt(Block& block) override {
    block.update();
    if ((block.step + 1) % outer_.h != 0) return;
    const Buffer d = block.state("outer gradient");
    block.combine(d, {{block.state("start"), 1}, {block.x, -1}});
    average(block, d);
  }

  void combine(Block& block) override {
    const Buffer start = block.state("start");
    const Buffer m = block.state("outer momentum");
    const Buffer d = block.state("outer gradient");
    block.combine(m, {{m, outer_.momentum}, {d, 1}});
    block.combine(block.x, {{start, 1}, {d, -outer_.lr}, {m, -outer_.lr * outer_.momentum}});
    block.copy(start, block.x);
  }

  void x_replaced(Block& block) override { block.copy(block.state("start"), block.x); }

 protected:
  virtual void average(Block& block, Buffer d) = 0;
  static MethodRequirements required(ScheduleKind schedule) {
    return {.schedule = schedule, .exact_messages_because = "it would round the outer step"};
  }

 private:
  Outer outer_;
};

class DiLoCo : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  MethodRequirements requirements() const override { return required(ScheduleKind::none); }

 private:
  void average(Block& block, Buffer d) override {
    block.collective().reduce({Block::in_place(d)}, Reduction::average);
  }
};

class NoLoCo : public TwoLevels {
 public:
  using TwoLevels::TwoLevels;
  MethodRequirements requirements() const override { return required(ScheduleKind::pairs); }

 private:
  void average(Block& block, Buffer d) override { block.mix({d, block.state("start")}); }
};

template <typename Method>
MethodFamily two_levels(const std::string& name, const std::string& summary) {
  return {
      name,
      summary,
      {{"h", "32", "local steps per outer step"},
       {"lr", "0.7", "learning rate of the outer step"},
       {"momentum", "0.9", "momentum of the outer step"}},
      [](const Parameters& given) {
        return std::make_shared<Method>(Outer{given.integer("h", 1, 1'000'000'000),
                                              given.number("lr", 0, 100), given.number("momentum", 0, 1)});
      }};
}

}  // namespace

MethodFamily diloco() {
  return two_levels<DiLoCo>("diloco",
                            "h local steps, then an outer Nesterov step along the ranks' mean progress");
}

MethodFamily noloco() {
  return two_levels<NoLoCo>("noloco",
                            "diloco without a global average: outer steps are averaged with one other rank");
}

}  // namespace starling::method::family

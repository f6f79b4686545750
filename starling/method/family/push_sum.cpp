#include "starling/method/family/list.h"
#include "starling/method/family/tracker.h"

namespace starling::method::family {
namespace {

/// Stochastic gradient push: u <- C(u + U(z, g)), p <- C p, z = u / p, with weights whose columns sum to one.
/// The parameters are z; messages contain u and the scalar p.
class PushSum : public Method {
 public:
  void adapt(Block& block) override {
    push_along(block, block.gradient, block.gradient_scale);
    block.mix({}, {block.state("u"), p_of(block)});
  }

  void combine(Block& block) override {
    // A rank that has given everything away (p = 0) continues from its own step.
    block.arithmetic().divide_by(block.x, block.state("u"), p_of(block));
  }

  void x_replaced(Block& block) override {
    block.combine(block.state("u"), {{block.x, read_number(p_of(block))}});
    block.numbers("pushing")[0] = 1;
  }

  MethodRequirements requirements() const override {
    return {.column_sums = true,
            .push_sum_schedules = true,
            .exact_messages_because =
                "it averages with weights that do not sum to one, which rounding would spoil"};
  }

 protected:
  // u += (z + U(z, direction)) - z; z is undefined afterwards.
  static void push_along(Block& block, ConstBuffer direction, double scale) {
    const Buffer u = block.state("u");
    const auto pushing = block.numbers("pushing");
    if (pushing[0] == 0) block.copy(u, block.x);
    pushing[0] = 1;
    block.combine(u, {{u, 1}, {block.x, -1}});
    block.update_along(direction, scale);
    block.add(u, block.x);
  }
  static Buffer p_of(Block& block) { return block.wide_scalar("p", 1); }
};

/// u <- C(u + U(z, y)), p <- C p, z = u / p, y <- C y + g(z_new) - g(z_old): exact on directed and changing
/// graphs in which a rank only knows its destinations.
class PushDiging : public PushSum {
 public:
  void adapt(Block& block) override {
    const Buffer y = Tracker::follow(block);
    push_along(block, y, 1);
    block.mix({}, {block.state("u"), y, p_of(block)});
  }
  void view_changed(Block& block) override { Tracker::restart(block); }
};

}  // namespace

MethodFamily push_sum() {
  return {"push-sum",
          "stochastic gradient push (SGP): for directed graphs that preserve only sums",
          {},
          [](const Parameters&) { return std::make_shared<PushSum>(); }};
}

MethodFamily push_diging() {
  return {"push-diging",
          "gradient tracking by push-sum: exact on directed graphs that preserve only sums",
          {},
          [](const Parameters&) { return std::make_shared<PushDiging>(); }};
}

}  // namespace starling::method::family

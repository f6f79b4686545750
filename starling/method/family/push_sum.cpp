#include <fmt/format.h>

#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

/// Stochastic gradient push: u <- C(u + U(z, g)), p <- C p, z = u / p, with weights whose columns sum to one.
/// The parameters are z; u is the block that travels, with the scalar p.
class PushSum : public Method {
 public:
  void adapt(Block& block) override {
    const MutableBlock u = block.state("u");
    const auto p = block.numbers("p", 1, 1);
    const auto begun = block.numbers("begun");
    const std::size_t bytes = block.count() * size_of(block.dtype());
    if (begun[0] == 0) {
      copy_bytes(u.data, block.x.data, bytes);
      begun[0] = 1;
    }
    // u += (z + U) - z
    const Term without_z[] = {{u.data, 1}, {block.x.data, -1}};
    starling::combine(block.dtype(), u.data, without_z, block.count());
    block.update();
    starling::reduce(Reduction::sum, block.dtype(), u.data, block.x.data, block.count());
    block.mix({u, {DType::float64, p.data(), 1}});
  }

  void combine(Block& block) override {
    const double p = block.numbers("p", 1, 1)[0];
    if (!(p > 0)) return;  // who has given everything away goes on from its own step
    const Term u{block.state("u").data, 1 / p};
    starling::combine(block.dtype(), block.x.data, {&u, 1}, block.count());
  }

  void x_replaced(Block& block) override {
    const Term z{block.x.data, block.numbers("p", 1, 1)[0]};
    starling::combine(block.dtype(), block.state("u").data, {&z, 1}, block.count());
  }

  void check(const Schedule& schedule) const override {
    if (schedule.mixing() == Mixing::two_block) Method::check(schedule);
  }
  std::string exact_messages_because() const override {
    return "it averages with weights that do not sum to one, which rounding would spoil";
  }
};

}  // namespace

MethodFamily push_sum() {
  return {"push-sum",
          "stochastic gradient push (SGP): for directed graphs on which only sums are kept",
          {},
          [](const Parameters&) { return std::make_shared<PushSum>(); }};
}

}  // namespace starling::methods

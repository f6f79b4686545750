#pragma once

#include "starling/method/method.h"

namespace starling::method::family {

/// Adapt, then combine: x <- sum of w_j (x_j + U_j). On a two-block schedule (CECA) the increment goes to
/// both blocks, and x is the one whose gradient is taken.
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

/// Adapt while communicating (D-PSGD): x <- z + U(z, g(x)) with z = sum of w_j x_j, which needs no gradient.
class DsgdAwc : public Method {
 public:
  void begin(Block& block) override { block.share(); }
  void adapt(Block& block) override { block.update_from_shared(); }
};

}  // namespace starling::method::family

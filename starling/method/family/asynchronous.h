#pragma once

#include <optional>

#include "starling/method/registry.h"

namespace starling::method::family {

/// A method whose ranks talk through one-sided memory: a step takes what is there, and waits for nobody
/// unless `staleness` bounds how many steps a rank may be ahead of those it hears.
class Asynchronous : public Method {
 public:
  explicit Asynchronous(std::optional<Step> staleness) : staleness_(staleness) {}

  void begin(Block& block) final;
  void settle(Block& block) override;
  MethodRequirements requirements() const override;

 protected:
  /// Everybody is in the same step, and what was sent before is in its place.
  static void meet(Block& block);
  /// The exchange of this rank's step.
  static Exchange round_of(const Block& block, Step step);
  /// This rank's increment is in the block: before the others are told of it.
  static void step_made(Block& block);
  /// They have been told: lets the slower ones catch up where that is asked for.
  void step_told(Block& block) const;

  /// Makes what the first step needs.
  virtual void prepare(Block& block) = 0;
  /// Takes up what has been sent to this rank since it made `step`.
  virtual void collect(Block& block, Step step) = 0;

 private:
  std::optional<Step> staleness_;
};

/// The parameter that bounds it.
Parameter staleness_parameter();
std::optional<Step> staleness_of(const Parameters& given);

}  // namespace starling::method::family

#pragma once

#include <optional>

#include "starling/method/registry.h"

namespace starling::method::family {

/// A method whose ranks communicate through one-sided memory: a step uses what has arrived and does not wait,
/// unless `staleness` bounds how many steps a rank may be ahead of its sources.
class Asynchronous : public Method {
 public:
  explicit Asynchronous(std::optional<Step> staleness) : staleness_(staleness) {}

  void begin(Block& block) final;
  void settle(Block& block) override;
  MethodRequirements requirements() const override;

 protected:
  /// Waits until every rank has called it; what was sent before has then arrived.
  static void barrier(Block& block);
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

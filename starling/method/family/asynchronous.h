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
  /// Waits until every rank has called it; everything sent before has then arrived.
  static void barrier(Block& block);
  /// The exchange of this rank's step.
  static Exchange round_of(const Block& block, Step step);
  /// Publishes that this rank has made its step: call it when its increment is in the block, before sending.
  static void publish_step(Block& block);
  /// Call it after sending: waits for slower ranks if `staleness` asks for that.
  void await_slower_ranks(Block& block) const;

  /// Prepares the first step.
  virtual void prepare(Block& block) = 0;
  /// Collects what other ranks have sent since this rank made `step`.
  virtual void collect(Block& block, Step step) = 0;

 private:
  std::optional<Step> staleness_;
};

/// The parameter `staleness`: its declaration, and its value in `given`.
Parameter staleness_parameter();
std::optional<Step> staleness_of(const Parameters& given);

}  // namespace starling::method::family

#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "starling/method/block.h"
#include "starling/method/requirements.h"
#include "starling/topology/schedule.h"

namespace starling::method {

/// The flock that a method is made for.
struct MethodSetting {
  Rank size = 1;
  Rank ranks_per_machine = 1;
};

/// How blocks, updates and neighbors' blocks become the next blocks. One object serves all blocks of a rank:
/// state that lasts from step to step is in the block. For every block and step the driver calls
///
/// - begin(b): x is final, its gradient not computed yet; operations started here overlap the computation;
/// - gradient(b): the gradient is complete, perhaps in the middle of backward; x must not change;
/// - gradient_done(b): the operations that gradient(b) started have ended: declare here what the gradient
/// means now; called again as long as it starts operations;
/// - adapt(b): all operations started above have ended, and gradients have been clipped;
/// - combine(b): the operations started since then have ended; called again as long as it starts operations.
class Method {
 public:
  virtual ~Method() = default;

  /// The spec as the user gave it, for messages.
  std::string spec;
  /// The spec with defaults filled in, for comparing ranks and checkpoints.
  std::string canonical;

  virtual void begin(Block&) {}
  virtual void gradient(Block&) {}
  virtual void gradient_done(Block&) {}
  virtual void adapt(Block& block) = 0;
  virtual void combine(Block&) {}
  /// A rank has died since the last step, so the schedule has changed.
  virtual void view_changed(Block&) {}

  /// The owner has written new values to x: update what the method derived from it.
  virtual void x_replaced(Block&) {}

  /// The model to evaluate and to save.
  virtual Buffer model(Block& block) const { return block.x; }

  /// The topology that the method follows if the user asks for this one.
  virtual std::string topology(const std::string& asked, const MethodSetting&) const { return asked; }
  /// The requirements; calls requirements() once.
  const MethodRequirements& needs() const {
    std::call_once(asked_, [&] { needs_ = requirements(); });
    return needs_;
  }
  /// Throws InvalidArgument with suitable topologies if the schedule does not suit the method. Override it
  /// for conditions that MethodRequirements cannot express.
  virtual void check(const Schedule& schedule) const { check_schedule(needs(), spec, schedule); }
  /// A warning for the user about this method on this schedule, which check() has accepted; usually "".
  virtual std::string warning(const Schedule&) const { return {}; }
  /// The method's own local optimizer, made from the user's settings; null: the user's optimizer.
  virtual UpdatePtr make_update(ConstBuffer /*x*/, std::size_t /*segments*/, const Hypers&) const {
    return nullptr;
  }
  /// Called between two steps on all ranks: receives messages that were sent and not used yet.
  virtual void settle(Block&) {}

  // Shortcuts for needs().
  bool needs_schedule() const { return needs().schedule != ScheduleKind::none; }
  bool needs_exact_messages() const { return !needs().exact_messages_because.empty(); }
  const std::string& exact_messages_because() const { return needs().exact_messages_because; }
  bool sends_gradients() const { return needs().gradient != GradientUse::own; }
  bool averages_gradients() const { return needs().gradient == GradientUse::averaged; }
  const RelayRule& relay_rule() const { return needs().relay; }
  bool asynchronous() const { return needs().asynchronous; }

 protected:
  /// The method's requirements for topology, optimizer and messages; default: an averaging topology.
  virtual MethodRequirements requirements() const { return {}; }

 private:
  mutable std::once_flag asked_;
  mutable MethodRequirements needs_;
};
using MethodPtr = std::shared_ptr<Method>;

}  // namespace starling::method

namespace starling {
using method::Method;
using method::MethodPtr;
using method::MethodSetting;
}  // namespace starling

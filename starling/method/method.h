#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "starling/method/block.h"
#include "starling/method/requirements.h"
#include "starling/topology/schedule.h"

namespace starling::method {

/// What a method is made for.
struct MethodSetting {
  Rank size = 1;
  Rank ranks_per_machine = 1;
};

/// How blocks, updates and neighbors' blocks become the next blocks. One object serves all blocks of a rank:
/// what lasts from step to step lives in the block. For every block and step the driver calls
///
/// - begin(b): x is final, its gradient not yet there: what is started here overlaps the computation;
/// - gradient(b): the gradient is there, perhaps in the middle of backward; x must not change;
/// - gradient_done(b): what gradient(b) started has arrived: the time to say what the gradient stands for;
///   again for as long as it starts something;
/// - adapt(b): everything started above has arrived, and gradients have been clipped;
/// - combine(b): what was started since has arrived; again for as long as it starts something.
class Method {
 public:
  virtual ~Method() = default;

  /// As make_method() was asked for it, for people.
  std::string spec;
  /// The same with defaults filled in, for comparing: between ranks, and with a checkpoint's.
  std::string canonical;

  virtual void begin(Block&) {}
  virtual void gradient(Block&) {}
  virtual void gradient_done(Block&) {}
  virtual void adapt(Block& block) = 0;
  virtual void combine(Block&) {}
  /// A rank has died since the last step: the schedule has changed.
  virtual void view_changed(Block&) {}

  /// The owner has written new values to x: updates what the method derived from it.
  virtual void x_replaced(Block&) {}

  /// What to evaluate and to save.
  virtual Buffer model(Block& block) const { return block.x; }

  /// The topology that the method follows when this one is asked for.
  virtual std::string topology(const std::string& asked, const MethodSetting&) const { return asked; }
  /// What it requires, asked for once (requirements()).
  const MethodRequirements& needs() const {
    std::call_once(asked_, [&] { needs_ = requirements(); });
    return needs_;
  }
  /// Throws InvalidArgument, naming topologies that work, where the schedule does not. Override it for what
  /// MethodRequirements cannot say.
  virtual void check(const Schedule& schedule) const { check_schedule(needs(), spec, schedule); }
  /// What the user should know of this method on this schedule, which check() has let pass; mostly nothing.
  virtual std::string warning(const Schedule&) const { return {}; }
  /// A local optimizer of its own, from the settings of the user's; null: the user's.
  virtual UpdatePtr make_update(ConstBuffer /*x*/, std::size_t /*segments*/, const Hypers&) const {
    return nullptr;
  }
  /// Between two steps, on all ranks: takes in what has been sent and not been used.
  virtual void settle(Block&) {}

  // What callers ask most of needs().
  bool needs_schedule() const { return needs().schedule != ScheduleKind::none; }
  bool needs_exact_messages() const { return !needs().exact_messages_because.empty(); }
  const std::string& exact_messages_because() const { return needs().exact_messages_because; }
  bool sends_gradients() const { return needs().gradient != GradientUse::own; }
  bool averages_gradients() const { return needs().gradient == GradientUse::averaged; }
  const RelayRule& relay_rule() const { return needs().relay; }
  bool asynchronous() const { return needs().asynchronous; }

 protected:
  /// What the method requires of topology, optimizer and messages; the default: an averaging topology.
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

#pragma once

#include <memory>
#include <string>

#include "starling/method/block.h"
#include "starling/topology/schedule.h"

namespace starling {

/// What a method is made for.
struct MethodSetting {
  Rank size = 1;
  Rank ranks_per_machine = 1;
};

/// How blocks, updates and neighbours' blocks become the next blocks. One object serves all blocks of a rank:
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

  /// As make_method() was asked for it, so that a checkpoint can tell whose it is.
  std::string spec;

  virtual void begin(Block&) {}
  virtual void gradient(Block&) {}
  virtual void gradient_done(Block&) {}
  virtual void adapt(Block& block) = 0;
  virtual void combine(Block&) {}
  /// Somebody has died since the last step: the next rounds are others.
  virtual void view_changed(Block&) {}

  /// The owner has put other values into x: what the method derived from it follows.
  virtual void x_replaced(Block&) {}

  /// What to evaluate and to save.
  virtual MutableBlock model(Block& block) const { return block.x; }

  /// The topology that the method follows when this one is asked for.
  virtual std::string topology(const std::string& asked, const MethodSetting&) const { return asked; }
  /// Throws InvalidArgument, naming topologies that work, where the schedule does not.
  virtual void check(const Schedule& schedule) const;
  /// Some that it works on, for refusals.
  virtual std::string works_on() const { return "ring, exponential or one-peer-exponential"; }
  /// What the user should know of this method on this schedule, which check() has let pass; mostly nothing.
  virtual std::string warning(const Schedule&) const { return {}; }
  /// Whether its steps use the schedule at all.
  virtual bool needs_schedule() const { return true; }
  /// A local optimizer of its own, from the settings of the user's; null: the user's.
  virtual UpdatePtr make_update(DType, std::size_t /*count*/, std::size_t /*segments*/, const Hypers&) const {
    return nullptr;
  }
  /// Which local optimizer it needs: "sgd" (without momentum), "adam" (Adam or AdamW), or any when empty.
  virtual std::string needs_optimizer() const { return {}; }
  /// Why messages cannot travel in fewer bits than the parameters have; empty where they can.
  virtual std::string exact_messages_because() const { return {}; }
  bool needs_exact_messages() const { return !exact_messages_because().empty(); }
  /// Why they cannot travel as int8, which has no sums of its own, where 16 bits do; empty where they can.
  virtual std::string no_int8_because() const { return {}; }
  /// Why it cannot do without a neighbour's message that is lost; empty where it can.
  virtual std::string no_losses_because() const { return {}; }
  /// gradient() tells others, so that a gradient cannot be taken back.
  virtual bool sends_gradients() const { return false; }
  /// After gradient_done(), block.gradient is the mean gradient on every rank, and adapt() takes it from
  /// there: it may be changed in between.
  virtual bool averages_gradients() const { return sends_gradients(); }
  /// How it relays, if it does.
  virtual RelayRule relay_rule() const { return {}; }
  /// Never waits for slower ranks, so that ranks may be in different steps.
  virtual bool asynchronous() const { return false; }
  /// Between two steps, on all ranks: takes in what has been sent and not been used.
  virtual void settle(Block&) {}
  /// Why it needs the optimizer of needs_optimizer().
  virtual std::string optimizer_because() const { return "its moments take their settings from it"; }
};
using MethodPtr = std::shared_ptr<Method>;

}  // namespace starling

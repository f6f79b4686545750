#pragma once

#include <memory>
#include <vector>

#include "starling/method/method.h"

namespace starling::method {

/// Takes all blocks of a rank through the steps of a method; what an owner of parameters (the Trainer, or a
/// program with plain vectors) drives:
///
///     driver.begin();          // then compute the gradients
///     driver.finish();         // x is the next one
class Driver {
 public:
  Driver(MethodPtr method, std::vector<std::unique_ptr<Block>> blocks);

  Step step() const { return step_; }
  /// Sets the step counter on every rank, for resuming from a checkpoint; x may have changed.
  void set_step(Step step);
  /// The owner has written to x since the last step: copies of it in outgoing memory are outdated.
  void parameters_changed();
  std::size_t size() const { return blocks_.size(); }
  Block& operator[](std::size_t i) { return *blocks_[i]; }
  Method& method() { return *method_; }

  /// Starts what needs no gradient. finish() does it where the caller has not.
  void begin();
  bool begun() const { return begun_; }
  /// Forgets the gradients of this step, before others come; also those that every rank has averaged. False
  /// when some have been used or are on their way.
  bool withdraw_gradients();
  /// All ranks have replaced x between the same steps: exchanges of the old x are dropped and start again,
  /// and the methods' own vectors follow.
  void restart();
  /// Block i's gradient is complete. Blocks may be told in any order; they start in theirs, so that all ranks
  /// agree.
  void gradient(std::size_t i);
  /// All gradients are complete, and what the method does with them (an average) is done: the time to clip.
  void gradients();
  /// Updates block i, in the middle of backward, if the blocks before it are done and nothing is missing.
  /// From then on, also in finish(), a block that is final begins its next step at once, while others are
  /// still on their way: links do not idle between steps.
  void finish_early(std::size_t i);
  /// The rest of the step: x is the next one when it returns.
  void finish() { proceed(true); }
  /// As much of it as can be done without waiting; true when x is the next one.
  bool try_finish() { return proceed(false); }
  /// Takes in what nobody waits for, before a checkpoint; every rank calls it between the same steps.
  void settle();

  /// Seconds spent waiting for others, so far.
  double waited() const;
  /// How old what asynchronous methods have used was.
  Staleness staleness() const;

 private:
  void begin_block(Block& block, Step step);
  static void end_block(Block& block);
  /// What these do only when everything is there, unless they may wait; false when it is not.
  bool proceed(bool may_wait);
  bool gradient_done(std::size_t blocks, bool may_wait);
  bool adapt_next(bool may_wait);
  void begin_next_step_of_final();
  static bool arrived(Block& block, bool may_wait);

  MethodPtr method_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Step step_ = 0;
  bool begun_ = false;
  bool runs_ahead_ = false;
  std::vector<bool> complete_;  // gradients
  std::size_t told_ = 0;        // blocks whose gradient the method has seen
  std::size_t done_ = 0;        // blocks whose gradient is what the method makes of it
  std::size_t adapted_ = 0;     // blocks
  std::size_t combined_ = 0;    // blocks whose step has ended, in finish()
  std::size_t ahead_ = 0;       // blocks whose next step has begun
};

}  // namespace starling::method

namespace starling {
using method::Driver;
}  // namespace starling

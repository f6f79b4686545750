#pragma once

#include <memory>
#include <vector>

#include "starling/method/method.h"

namespace starling::method {

/// Runs the steps of a method on all blocks of a rank, for an owner of parameters (the Trainer, or a program
/// with plain vectors):
///
///   driver.begin();          // then compute the gradients
///   driver.finish();         // x is the next one
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

  /// Starts the communication that needs no gradient; finish() does so if the caller has not.
  void begin();
  bool begun() const { return begun_; }
  /// Discards the gradients of this step, including averaged ones, so that new ones can follow. Returns false
  /// if some have been used or are being sent.
  bool withdraw_gradients();
  /// All ranks have replaced x between the same steps: exchanges of the old x are dropped and start again,
  /// and the methods' own vectors are updated.
  void restart();
  /// Block i's gradient is complete. Calls may come in any order; communication starts in the order of
  /// blocks, so that all ranks agree.
  void gradient(std::size_t i);
  /// Waits until the method has processed the complete gradients (such as averaged them); clip them now.
  void gradients();
  /// Updates block i during backward if the blocks before it are done and its messages have arrived. From
  /// then on, also in finish(), a final block begins its next step at once while others are still being
  /// exchanged, so links do not idle between steps.
  void finish_early(std::size_t i);
  /// Completes the step: x is the next one when it returns.
  void finish() { proceed(true); }
  /// Completes as much of the step as possible without waiting; true when x is the next one.
  bool try_finish() { return proceed(false); }
  /// Completes asynchronous messages before a checkpoint; every rank calls it between the same steps.
  void settle();

  /// Seconds spent waiting for other ranks so far.
  double waited() const;
  /// The age of the values that asynchronous methods have used so far.
  Staleness staleness() const;

 private:
  void begin_block(Block& block, Step step);
  static void end_block(Block& block);
  /// These return false if messages are missing and `may_wait` is false.
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
  std::vector<bool> complete_;  // by block: its gradient
  std::size_t told_ = 0;        // blocks whose gradient the method has seen
  std::size_t done_ = 0;        // blocks whose gradient the method has finished
  std::size_t adapted_ = 0;     // blocks
  std::size_t combined_ = 0;    // blocks whose step has ended, in finish()
  std::size_t ahead_ = 0;       // blocks whose next step has begun
};

}  // namespace starling::method

namespace starling {
using method::Driver;
}  // namespace starling

#pragma once

#include <memory>
#include <vector>

#include "starling/flock/flock.h"
#include "starling/method/method.h"

namespace starling {

/// Takes all blocks of a rank through the steps of a method; what an owner of parameters (the Trainer, or a
/// program with plain vectors) drives:
///
///     driver.begin();          // then compute the gradients
///     driver.finish();         // x is the next one
class Driver {
 public:
  Driver(MethodPtr method, std::vector<std::unique_ptr<Block>> blocks);

  Step step() const { return step_; }
  /// As after so many steps, on every rank; x may be another.
  void set_step(Step step);
  /// Somebody else has written to x since the last step: what was kept of it to be sent is not x any more.
  void parameters_changed();
  std::size_t size() const { return blocks_.size(); }
  Block& operator[](std::size_t i) { return *blocks_[i]; }
  Method& method() { return *method_; }

  /// Starts what needs no gradient. finish() does it if nobody has.
  void begin();
  bool begun() const { return begun_; }
  /// Forgets the gradients of this step, before others come. False when some have been used already.
  bool withdraw_gradients();
  /// Everybody's x was replaced, by all ranks between the same steps: what was begun with the old ones is
  /// begun anew, and the methods' own blocks follow.
  void restart();
  /// Block i's gradient is complete. Blocks may be told in any order; they start in theirs, so that all ranks
  /// agree.
  void gradient(std::size_t i);
  /// All gradients are complete, and what the method does with them (an average) is done: the time to clip.
  void gradients();
  /// Updates block i, in the middle of backward, if the blocks before it are done and nothing is missing. A
  /// block that is final then begins its next step.
  void finish_early(std::size_t i);
  /// The rest of the step: x is the next one when it returns.
  void finish();

  /// Seconds spent waiting for others, so far.
  double waited() const;

 private:
  void begin_block(Block& block, Step step);
  static void end_block(Block& block);
  void adapt_next();
  void gradient_done(std::size_t blocks);

  MethodPtr method_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Step step_ = 0;
  bool begun_ = false;
  std::vector<bool> complete_;  // gradients
  std::size_t told_ = 0;        // blocks whose gradient the method has seen
  std::size_t done_ = 0;        // blocks whose gradient is what the method makes of it
  std::size_t adapted_ = 0;     // blocks
  std::size_t ahead_ = 0;       // blocks whose next step has begun
};

/// What a driver of a program's own vectors is made from.
struct DriverOptions {
  std::string method = "dsgd-awc";
  std::string topology = "exponential";
  std::string optimizer = "sgd";
  std::uint64_t seed = 0;
  DType message = DType::float32;
  std::string name = "blocks";
};
/// Drives x along its gradient, both of the program's own.
Driver drive(const Flock& flock, MutableBlock x, MutableBlock gradient, const DriverOptions& options);

/// The schedule a method follows on this flock when `topology` is asked for; null where it needs none.
SchedulePtr schedule_for(const Flock& flock, const Method& method, const std::string& topology,
                         std::uint64_t seed);

}  // namespace starling

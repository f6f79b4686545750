#pragma once

#include <memory>
#include <span>
#include <vector>

#include "starling/data/partition.h"
#include "starling/train/experiment.h"
#include "starling/train/task.h"

namespace starling::train {

/// The data of an experiment: the task, and the samples of this rank, batch by batch.
class ExperimentData {
 public:
  /// Loads the experiment's data set, unless `task` already holds it.
  ExperimentData(Flock& flock, const Experiment& experiment, std::shared_ptr<const Task> task);

  const Task& task() const { return *task_; }

  /// Starts an epoch after its first `batches` batches, which were trained on before a resume.
  void start_epoch(int epoch, std::int64_t batches);
  /// The next batch; empty if this rank has none left in this epoch.
  std::span<const std::uint32_t> next_batch();
  /// The number of steps in an epoch, the same on all ranks: that of the longest shard or, if shorter shards
  /// repeat, of a shard of mean length. A collective. Throws InvalidArgument if an epoch has too few batches
  /// for one step.
  std::int64_t steps_per_epoch();
  /// Gives the samples of dead ranks to the others; between two epochs.
  void redistribute(const std::vector<Rank>& dead);

 private:
  std::int64_t batches_per_epoch();

  Flock& flock_;
  const Experiment& experiment_;
  std::shared_ptr<const Task> task_;
  std::vector<Shard> shards_;
  ShardSampler sampler_;
  bool repeats_;  // a shard that ends before the epoch is repeated
  int epoch_ = 0;
  std::int64_t pass_ = 0;          // over this rank's shard in this epoch
  std::size_t redistributed_ = 0;  // dead ranks whose samples have been redistributed
};

}  // namespace starling::train

#include "starling/train/experiment_data.h"

#include <fmt/format.h>
#include <limits>

#include "starling/base/error.h"

namespace starling::train {
namespace {

// Beyond any epoch number: the orders of a shard's further passes are drawn like those of other epochs.
constexpr std::int64_t kPass = 1'000'003;
constexpr std::int64_t kEpochs = std::numeric_limits<std::int32_t>::max();

}  // namespace

ExperimentData::ExperimentData(Flock& flock, const Experiment& experiment, std::shared_ptr<const Task> task)
    : flock_(flock),
      experiment_(experiment),
      task_(task ? std::move(task) : load_task(experiment.data)),
      shards_(task_->partition(experiment.partition, flock.size(), experiment.seed)),
      sampler_(shards_[static_cast<std::size_t>(flock.rank())], flock.rank(), experiment.seed),
      repeats_(experiment.uneven == "again") {}

void ExperimentData::start_epoch(int epoch, std::int64_t batches) {
  epoch_ = epoch;
  pass_ = 0;
  sampler_.start(epoch);
  for (std::int64_t done = 0; done < batches; ++done) next_batch();
}

std::span<const std::uint32_t> ExperimentData::next_batch() {
  const auto size = static_cast<std::size_t>(experiment_.batch);
  auto samples = sampler_.next(size);
  if (samples.empty() && repeats_ && !sampler_.shard().empty()) {
    sampler_.start((epoch_ + ++pass_ * kPass) % kEpochs);
    samples = sampler_.next(size);
  }
  return samples;
}

// The number of batches of the longest shard, or of a shard of mean length if shards are repeated.
std::int64_t ExperimentData::batches_per_epoch() {
  const auto size = static_cast<std::size_t>(experiment_.batch);
  if (!repeats_) {
    std::vector<std::int64_t> most = {static_cast<std::int64_t>(sampler_.batches(size))};
    flock_.allreduce(most, Reduction::max, "experiment/epoch");
    return most[0];
  }
  std::vector<std::int64_t> sums = {static_cast<std::int64_t>(sampler_.shard().size()), 1};
  flock_.allreduce(sums, Reduction::sum, "experiment/epoch");
  const std::int64_t samples = sums[1] * static_cast<std::int64_t>(size);
  return (sums[0] + samples - 1) / samples;
}

std::int64_t ExperimentData::steps_per_epoch() {
  const std::int64_t batches = batches_per_epoch();
  const std::int64_t per_step = experiment_.accumulation;
  if (per_step > batches)
    throw InvalidArgument(fmt::format(
        "accumulation = {}: an epoch has {} batches of {} samples per worker, fewer than one step "
        "would take; choose a smaller accumulation or batch",
        per_step, batches, experiment_.batch));
  return (batches + per_step - 1) / per_step;
}

void ExperimentData::redistribute(const std::vector<Rank>& dead) {
  if (dead.size() == redistributed_) return;
  redistributed_ = dead.size();
  sampler_.replace(reshard(shards_, dead, experiment_.seed)[static_cast<std::size_t>(flock_.rank())]);
}

}  // namespace starling::train

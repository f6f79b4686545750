#include "starling/train/experiment_meter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "starling/train/device_tensors.h"

namespace starling::train {
namespace {

constexpr double kNoBadStep = -std::numeric_limits<double>::max();

bool contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

ExperimentMeter::ExperimentMeter(Trainer& trainer, const Reporter& report)
    : trainer_(trainer),
      report_(report),
      bytes_by_rank_(static_cast<std::size_t>(trainer.flock().size())),
      uncounted_(trainer.flock().bytes_sent()) {
  totals_.workers = trainer.flock().size();
}

void ExperimentMeter::resume(const RunReport& totals, std::uint64_t bytes) {
  totals_ = totals;
  totals_.workers = trainer_.flock().size();
  before_ = bytes;
}

void ExperimentMeter::add_batch(const torch::Tensor& loss, std::size_t samples) {
  samples_ += static_cast<double>(samples);
  const Step step = trainer_.steps() + 1;
  if (!is_on_device(loss)) return add_loss(loss.item<double>(), step);
  unread_.push_back(loss);
  unread_steps_.push_back(step);
}

void ExperimentMeter::add_loss(double loss, Step step) {
  if (!std::isfinite(loss) && !bad_step_) bad_step_ = step;
  loss_ += loss;
  ++losses_;
}

void ExperimentMeter::read_losses() {
  if (unread_.empty()) return;
  const torch::Tensor all = torch::stack(unread_).to(torch::kCPU, torch::kFloat64);
  for (std::size_t i = 0; i < unread_steps_.size(); ++i)
    add_loss(all[static_cast<std::int64_t>(i)].item<double>(), unread_steps_[i]);
  unread_.clear();
  unread_steps_.clear();
}

std::uint64_t ExperimentMeter::own_bytes() const {
  return before_ + trainer_.flock().bytes_sent() - uncounted_;
}

std::uint64_t ExperimentMeter::bytes_to_save() const {
  std::uint64_t sum = own_bytes();
  Rank first = 0;
  while (contains(dead_, first)) ++first;
  if (trainer_.flock().rank() == first)
    for (const Rank rank : dead_) sum += bytes_by_rank_[static_cast<std::size_t>(rank)];
  return sum;
}

double ExperimentMeter::seconds_until_now() const {
  return totals_.seconds + std::chrono::duration<double>(Clock::now() - since_).count();
}

void ExperimentMeter::note_dead(const std::vector<Rank>& dead) {
  totals_.workers = trainer_.flock().size() - static_cast<int>(dead.size());
  for (const Rank rank : dead)
    if (!contains(dead_, rank)) report_(PeerFailure{trainer_.steps(), rank});
  dead_ = dead;
}

std::vector<Rank> ExperimentMeter::find_dead() {
  const Uncounted uncounted(*this);
  Flock& flock = trainer_.flock();
  const View view = flock.view();
  std::vector<std::int32_t> dead(static_cast<std::size_t>(flock.size()));
  for (Rank rank = 0; rank < flock.size(); ++rank)
    dead[static_cast<std::size_t>(rank)] = view.has(rank) ? 0 : 1;
  flock.allreduce(dead, Reduction::max, "experiment/dead");
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < flock.size(); ++rank)
    if (dead[static_cast<std::size_t>(rank)] != 0) ranks.push_back(rank);
  note_dead(ranks);
  return ranks;
}

// Encodes the earliest loss of any rank that is not finite as a number whose maximum over the ranks finds it.
double ExperimentMeter::bad_step_and_rank() const {
  if (!bad_step_) return kNoBadStep;
  return -static_cast<double>(*bad_step_ * trainer_.flock().size() + trainer_.flock().rank());
}

void ExperimentMeter::note_divergence(double earliest) {
  if (earliest == kNoBadStep) return;
  const auto number = static_cast<std::int64_t>(-earliest);
  const Rank size = trainer_.flock().size();
  divergence_ = RunDivergence{number / size, static_cast<Rank>(number % size)};
}

bool ExperimentMeter::agree_on_divergence() {
  read_losses();
  const Uncounted uncounted(*this);
  std::vector<double> earliest = {bad_step_and_rank()};
  trainer_.flock().allreduce(earliest, Reduction::max, "experiment/divergence");
  note_divergence(earliest[0]);
  return divergence_.has_value();
}

void ExperimentMeter::sum_up() {
  read_losses();
  Flock& flock = trainer_.flock();
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  const double waited = trainer_.waited() - waited_;
  const double combined = trainer_.combined() - combined_;
  const Staleness staleness = trainer_.staleness();
  std::vector<double> sums = {loss_,
                              losses_,
                              samples_,
                              waited,
                              combined,
                              std::max(0.0, seconds - waited - combined),
                              steps_ > 0 ? 1.0 : 0.0,
                              staleness.sum,
                              static_cast<double>(staleness.used)};
  std::vector<double> largest = {static_cast<double>(staleness.oldest), bad_step_and_rank()};
  const std::uint64_t sent = own_bytes();
  const Uncounted uncounted(*this);
  // After the sums, by rank: whether it is dead, and how many bytes it has sent.
  const std::size_t own = sums.size();
  const std::size_t ranks = bytes_by_rank_.size();
  const View view = flock.view();
  for (Rank rank = 0; rank < flock.size(); ++rank) sums.push_back(view.has(rank) ? 0 : 1);
  sums.resize(own + 2 * ranks);
  sums[own + ranks + static_cast<std::size_t>(flock.rank())] = static_cast<double>(sent);
  flock.allreduce(sums, Reduction::sum, "experiment/report");
  flock.allreduce(largest, Reduction::max, "experiment/oldest");
  std::vector<Rank> dead;
  for (Rank rank = 0; rank < flock.size(); ++rank)
    if (sums[own + static_cast<std::size_t>(rank)] > 0) dead.push_back(rank);
  note_dead(dead);
  // The bytes that dead ranks had sent by their last report still count.
  for (std::size_t rank = 0; rank < ranks; ++rank)
    bytes_by_rank_[rank] =
        std::max(bytes_by_rank_[rank], static_cast<std::uint64_t>(sums[own + ranks + rank]));
  totals_.step = trainer_.steps();
  totals_.seconds += seconds;
  totals_.loss = sums[1] > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
  totals_.images_per_second = sums[2] / std::max(seconds, 1e-9);
  totals_.waiting += sums[3] / totals_.workers;
  totals_.combining += sums[4] / totals_.workers;
  totals_.computing += sums[5] / totals_.workers;
  totals_.bytes_sent = std::accumulate(bytes_by_rank_.begin(), bytes_by_rank_.end(), std::uint64_t{0});
  totals_.taking_part = static_cast<int>(sums[6]);
  totals_.staleness = sums[8] > 0 ? sums[7] / sums[8] : 0;
  totals_.staleness_most = largest[0];
  totals_.consensus_distance = trainer_.consensus_distance();
  note_divergence(largest[1]);
  waited_ += waited;
  combined_ += combined;
  loss_ = losses_ = samples_ = 0;
  steps_ = 0;
}

}  // namespace starling::train

#include "starling/train/experiment.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <limits>
#include <numbers>
#include <numeric>

#include "starling/base/error.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/method/update.h"
#include "starling/train/experiment_checkpoint.h"
#include "starling/train/task.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer.h"
#include "starling/version.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// Far from every epoch: the orders of a shard's passes within one epoch are drawn as those of others.
constexpr std::int64_t kPass = 1'000'003;
constexpr std::int64_t kEpochs = std::numeric_limits<std::int32_t>::max();

// The learning rate's factor after a share of the run.
double rate_factor(const Experiment& experiment, double epoch) {
  if (epoch < experiment.warmup) return epoch / experiment.warmup;
  if (!experiment.cosine) return 1;
  const double rest = experiment.epochs - experiment.warmup;
  return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, (epoch - experiment.warmup) / rest)));
}

// Who is dead, as all survivors agree.
std::vector<Rank> agreed_dead(Flock& flock) {
  const View view = flock.view();
  std::vector<std::int32_t> dead(static_cast<std::size_t>(flock.size()));
  for (Rank rank = 0; rank < flock.size(); ++rank)
    dead[static_cast<std::size_t>(rank)] = view.has(rank) ? 0 : 1;
  flock.allreduce(dead, Reduction::max, "experiment/dead");
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < flock.size(); ++rank)
    if (dead[static_cast<std::size_t>(rank)] != 0) ranks.push_back(rank);
  return ranks;
}

std::vector<std::uint32_t> numbers_from(std::size_t first, std::size_t last) {
  std::vector<std::uint32_t> all(last - first);
  std::iota(all.begin(), all.end(), static_cast<std::uint32_t>(first));
  return all;
}

void check(const Experiment& experiment) {
  const auto need = [](bool good, const std::string& text) {
    if (!good) throw InvalidArgument(text);
  };
  need(experiment.batch >= 1, fmt::format("batch = {}: a batch has at least one sample", experiment.batch));
  need(experiment.uneven == "again" || experiment.uneven == "skip",
       fmt::format("uneven = {}: again or skip", experiment.uneven));
  need(experiment.epochs >= 1, fmt::format("epochs = {}: train for at least one", experiment.epochs));
  need(experiment.warmup >= 0 && experiment.warmup <= experiment.epochs,
       fmt::format("warmup = {}: between 0 and the {} epochs there are", experiment.warmup,
                   experiment.epochs));
  need(experiment.drop >= 0 && experiment.drop < 1,
       fmt::format("drop = {}: a share of the messages, from 0 to below 1", experiment.drop));
  check_losses(*make_method(experiment.method), experiment.drop > 0);
  need(experiment.reports >= 0, fmt::format("reports = {}: 0 or more per epoch", experiment.reports));
  need(experiment.local_test >= 0, fmt::format("local_test = {}: 0 or more samples", experiment.local_test));
}

class Run {
 public:
  Run(Flock& flock, const Experiment& experiment, const Reporter& report,
      const CheckpointOptions& checkpoints)
      : flock_(flock),
        experiment_((check(experiment), experiment)),
        report_(report),
        task_(make_task(experiment.data)),
        shards_(task_->partition(experiment.partition, flock.size(), experiment.seed)),
        sampler_(shards_[static_cast<std::size_t>(flock.rank())], flock.rank(), experiment.seed),
        lr_(parse_optimizer(experiment.optimizer).hyper.lr),
        again_(experiment.uneven == "again"),
        every_(checkpoints.every),
        checkpoints_(flock, experiment_, checkpoints) {
    torch::manual_seed(experiment.seed);
    model_ = task_->make_model(experiment.model);
    optimizer_ = make_torch_optimizer(experiment.optimizer, model_->parameters());
    trainer_ = std::make_unique<Trainer>(flock, *model_, *optimizer_,
                                         TrainerOptions{.method = experiment.method,
                                                        .topology = experiment.topology,
                                                        .seed = experiment.seed,
                                                        .message = experiment.message,
                                                        .accumulation = experiment.accumulation,
                                                        .clip_norm = experiment.clip_norm,
                                                        .eager = experiment.eager,
                                                        .on_nonfinite = experiment.on_nonfinite,
                                                        .on_peer_failure = experiment.on_peer_failure});
    last_.workers = flock.size();
    sent_.resize(static_cast<std::size_t>(flock.size()));
    uncounted_ = flock.bytes_sent();
  }

  RunReport run() {
    if (const auto resumed = resume()) {
      position_ = resumed->position;
      last_ = position_.totals;
      last_.workers = flock_.size();
      carried_ = position_.bytes;
      saved_ = std::floor(last_.epoch / every_ + 1e-9);
      if (position_.epoch >= experiment_.epochs) {
        report_(RunEnd{trainer_->steps(), last_.seconds, {}, true});
        return last_;
      }
      report_(RunResume{trainer_->steps(), {}, {}, resumed->reset});
    } else {
      report_(header());
    }
    for (; position_.epoch < experiment_.epochs && !diverged_; ++position_.epoch, position_.step = 0) {
      if (position_.epoch > 0) deal_for_the_dead();
      train_epoch();
      evaluate();
      if (!diverged_ && due(position_.epoch + 1.0)) {
        RunPosition next = position_;
        ++next.epoch;
        next.step = 0;
        save(next);
      }
    }
    checkpoints_.finish();
    tell_problem();
    if (const auto missing = checkpoints_.not_saved()) report_(*missing);
    report_(RunEnd{trainer_->steps(), last_.seconds, diverged_});
    return evaluated_;
  }

 private:
  /// What is sent while this lives is not counted as the training's.
  class Aside {
   public:
    explicit Aside(Run& run) : run_(run), sent_(run.flock_.bytes_sent()) {}
    ~Aside() { run_.uncounted_ += run_.flock_.bytes_sent() - sent_; }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    Run& run_;
    std::uint64_t sent_;
  };

  std::optional<ExperimentCheckpoints::Resumed> resume() {
    const Aside aside(*this);
    return checkpoints_.resume(*trainer_);
  }

  // Of this rank, in all of the run.
  std::uint64_t bytes() const { return carried_ + flock_.bytes_sent() - uncounted_; }

  // The first survivor's checkpoint has them.
  std::uint64_t bytes_of_the_dead() const {
    Rank first = 0;
    while (std::find(dead_.begin(), dead_.end(), first) != dead_.end()) ++first;
    if (flock_.rank() != first) return 0;
    std::uint64_t sum = 0;
    for (const Rank rank : dead_) sum += sent_[static_cast<std::size_t>(rank)];
    return sum;
  }

  RunHeader header() const {
    RunHeader header;
    header.starling = STARLING_VERSION;
    header.torch = TORCH_VERSION;
    header.workers = flock_.size();
    header.parameters = static_cast<std::int64_t>(trainer_->parameter_count());
    header.experiment = settings_of(experiment_);
    return header;
  }

  // Tells of those who were alive until now.
  void note_dead(const std::vector<Rank>& dead) {
    last_.workers = flock_.size() - static_cast<int>(dead.size());
    for (const Rank rank : dead)
      if (std::find(dead_.begin(), dead_.end(), rank) == dead_.end())
        report_(PeerFailure{trainer_->steps(), rank});
    dead_ = dead;
  }

  void deal_for_the_dead() {
    const Aside aside(*this);
    const std::vector<Rank> dead = agreed_dead(flock_);
    note_dead(dead);
    if (dead.size() == dealt_) return;
    dealt_ = dead.size();
    sampler_.replace(deal_again(shards_, dead, experiment_.seed)[static_cast<std::size_t>(flock_.rank())]);
  }

  void train_epoch() {
    const std::size_t size =
        static_cast<std::size_t>(experiment_.batch) * static_cast<std::size_t>(experiment_.accumulation);
    begin_shard();
    for (std::int64_t done = 0; done < position_.step * experiment_.accumulation; ++done) next_samples();
    const std::int64_t steps = steps_of_epoch(size);
    const std::int64_t every = std::max<std::int64_t>(1, steps / std::max(1, experiment_.reports));
    begin_ = Clock::now();
    while (position_.step < steps && !diverged_) {
      set_rate(position_.epoch + static_cast<double>(position_.step) / static_cast<double>(steps));
      one_step();
      ++position_.step;
      const double epoch = position_.epoch + static_cast<double>(position_.step) / static_cast<double>(steps);
      last_.epoch = epoch;
      const bool at_end = position_.step + every / 2 >= steps;
      if (experiment_.reports > 0 && position_.step % every == 0 && !at_end) tell();
      if (position_.step < steps && due(epoch) && !agree_on_divergence()) save(position_);
    }
    if (!diverged_) last_.epoch = position_.epoch + 1;
  }

  // As many as the longest shard gives; or, where shorter ones begin again, as one of mean length.
  std::int64_t steps_of_epoch(std::size_t size) {
    const Aside aside(*this);
    if (!again_) return trainer_->begin_epoch(static_cast<std::int64_t>(sampler_.batches(size)));
    std::vector<std::int64_t> sums = {static_cast<std::int64_t>(sampler_.shard().size()), 1};
    flock_.allreduce(sums, Reduction::sum, "experiment/epoch");
    const std::int64_t samples = sums[1] * static_cast<std::int64_t>(size);
    return (sums[0] + samples - 1) / samples;
  }

  void begin_shard() {
    pass_ = 0;
    sampler_.start(position_.epoch);
  }

  // Of a shard that begins again, the passes of an epoch have orders of their own.
  std::span<const std::uint32_t> next_samples() {
    const auto size = static_cast<std::size_t>(experiment_.batch);
    auto samples = sampler_.next(size);
    if (samples.empty() && again_ && !sampler_.shard().empty()) {
      sampler_.start((position_.epoch + ++pass_ * kPass) % kEpochs);
      samples = sampler_.next(size);
    }
    return samples;
  }

  void set_rate(double epoch) {
    last_.learning_rate = lr_ * rate_factor(experiment_, epoch);
    set_learning_rate(*optimizer_, last_.learning_rate);
  }

  // A rank without data keeps answering, and so does one whose loss is not finite, until all end the run.
  void one_step() {
    bool any = false;
    trainer_->zero_grad();
    for (int k = 0; k < experiment_.accumulation; ++k) {
      const auto samples = next_samples();
      if (samples.empty()) break;
      torch::Tensor loss = task_->loss(*model_, samples);
      const double value = loss.item<double>();
      if (!std::isfinite(value) && !bad_step_) bad_step_ = trainer_->steps() + 1;
      loss_ += value;
      ++losses_;
      images_ += static_cast<double>(samples.size());
      if (bad_step_ && experiment_.on_nonfinite != "ignore") {
        any = false;
        break;
      }
      if (experiment_.accumulation > 1) loss = loss / experiment_.accumulation;
      loss.backward();
      any = true;
    }
    if (any) {
      trainer_->step();
      ++taken_;
    } else {
      trainer_->skip();
    }
  }

  // The earliest loss of any rank that is not finite, as a number that a maximum over the ranks finds.
  double bad_step_and_rank() const {
    if (!bad_step_) return -std::numeric_limits<double>::max();
    return -static_cast<double>(*bad_step_ * flock_.size() + flock_.rank());
  }
  void note_divergence(double earliest) {
    if (earliest == -std::numeric_limits<double>::max()) return;
    const auto number = static_cast<std::int64_t>(-earliest);
    diverged_ = RunDivergence{number / flock_.size(), static_cast<Rank>(number % flock_.size())};
  }
  bool agree_on_divergence() {
    const Aside aside(*this);
    std::vector<double> earliest = {bad_step_and_rank()};
    flock_.allreduce(earliest, Reduction::max, "experiment/divergence");
    note_divergence(earliest[0]);
    return diverged_.has_value();
  }

  // Sums over the ranks, which all of them report.
  void summarise() {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double waited = trainer_->waited() - waited_;
    const double combined = trainer_->combined() - combined_;
    std::vector<double> sums = {loss_,
                                losses_,
                                images_,
                                waited,
                                combined,
                                std::max(0.0, seconds - waited - combined),
                                taken_ > 0 ? 1.0 : 0.0,
                                trainer_->staleness().sum,
                                static_cast<double>(trainer_->staleness().used)};
    std::vector<double> oldest = {static_cast<double>(trainer_->staleness().oldest), bad_step_and_rank()};
    const std::uint64_t sent = bytes();
    const Aside aside(*this);
    const std::size_t own = sums.size();
    const std::size_t ranks = sent_.size();
    const View view = flock_.view();
    for (Rank rank = 0; rank < flock_.size(); ++rank) sums.push_back(view.has(rank) ? 0 : 1);
    sums.resize(own + 2 * ranks);
    sums[own + ranks + static_cast<std::size_t>(flock_.rank())] = static_cast<double>(sent);
    flock_.allreduce(sums, Reduction::sum, "experiment/report");
    flock_.allreduce(oldest, Reduction::max, "experiment/oldest");
    std::vector<Rank> dead;
    for (Rank rank = 0; rank < flock_.size(); ++rank)
      if (sums[own + static_cast<std::size_t>(rank)] > 0) dead.push_back(rank);
    note_dead(dead);
    // What the dead had sent until they were last heard of still counts.
    for (std::size_t rank = 0; rank < ranks; ++rank)
      sent_[rank] = std::max(sent_[rank], static_cast<std::uint64_t>(sums[own + ranks + rank]));
    last_.step = trainer_->steps();
    last_.seconds += seconds;
    last_.loss = sums[1] > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
    last_.images_per_second = sums[2] / std::max(seconds, 1e-9);
    last_.waiting += sums[3] / last_.workers;
    last_.combining += sums[4] / last_.workers;
    last_.computing += sums[5] / last_.workers;
    last_.bytes_sent = std::accumulate(sent_.begin(), sent_.end(), std::uint64_t{0});
    last_.taking_part = static_cast<int>(sums[6]);
    last_.staleness = sums[8] > 0 ? sums[7] / sums[8] : 0;
    last_.staleness_most = oldest[0];
    last_.consensus_distance = trainer_->consensus_distance();
    note_divergence(oldest[1]);
    waited_ += waited;
    combined_ += combined;
    loss_ = losses_ = images_ = 0;
    taken_ = 0;
  }

  void tell() {
    summarise();
    tell_problem();
    report_(last_);
    begin_ = Clock::now();
  }

  // Training goes on without its checkpoints, but not in silence.
  void tell_problem() {
    if (const auto problem = checkpoints_.problem())
      std::cerr << fmt::format("starling: rank {}: {}\n", flock_.rank(), *problem) << std::flush;
  }

  // The mean model, of which every rank judges its part of the test samples, and each rank's own.
  void evaluate() {
    summarise();
    const Aside aside(*this);
    const View view = flock_.view();
    const auto place = static_cast<std::size_t>(
        std::find(view.members.begin(), view.members.end(), flock_.rank()) - view.members.begin());
    const std::size_t count = task_->size(Split::test);
    const std::size_t parts = view.members.size();
    trainer_->settle();
    model_->eval();
    double local = 0;
    const std::size_t judged = std::min(count, static_cast<std::size_t>(experiment_.local_test));
    if (judged > 0) {
      const Task::Judged own = task_->judge(*model_, numbers_from(0, judged));
      local = own.right / own.count;
    }
    std::vector<double> sums = {0, 0, 0, local, 1, 0, 0};
    {
      const auto average = trainer_->global_average();
      // In two, at the end of the samples that own models are judged on.
      const std::size_t first = count * place / parts;
      const std::size_t last = count * (place + 1) / parts;
      const std::size_t between = std::clamp(judged, first, last);
      const Task::Judged there = task_->judge(*model_, numbers_from(first, between));
      const Task::Judged rest = task_->judge(*model_, numbers_from(between, last));
      sums[0] = there.right + rest.right;
      sums[1] = there.loss + rest.loss;
      sums[2] = there.count + rest.count;
      sums[5] = there.right;
      sums[6] = there.count;
    }
    model_->train();
    flock_.allreduce(sums, Reduction::sum, "experiment/evaluation");
    RunReport report = last_;
    report.test_accuracy = sums[0] / sums[2];
    report.test_loss = sums[1] / sums[2];
    if (judged > 0) {
      std::vector<double> extremes = {local, -local};
      flock_.allreduce(extremes, Reduction::max, "experiment/local");
      report.local_accuracy = sums[3] / sums[4];
      report.local_accuracy_most = extremes[0];
      report.local_accuracy_least = -extremes[1];
      report.local_mean_accuracy = sums[5] / sums[6];
    }
    tell_problem();
    report_(report);
    evaluated_ = report;
  }

  // Whether a checkpoint falls into the step that ended at this point.
  bool due(double epoch) {
    const double number = std::floor(epoch / every_ + 1e-9);
    if (number <= saved_) return false;
    saved_ = number;
    return true;
  }

  void save(const RunPosition& where) {
    RunPosition position = where;
    position.totals = last_;
    position.totals.seconds +=
        position.step > 0 ? std::chrono::duration<double>(Clock::now() - begin_).count() : 0;
    position.bytes = bytes() + bytes_of_the_dead();
    checkpoints_.save(*trainer_, position);
  }

  Flock& flock_;
  const Experiment& experiment_;
  const Reporter& report_;
  std::unique_ptr<Task> task_;
  std::vector<Shard> shards_;
  ShardSampler sampler_;
  double lr_;
  bool again_;
  std::int64_t pass_ = 0;  // over this rank's shard in this epoch
  ModelPtr model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  double every_;
  ExperimentCheckpoints checkpoints_;
  double saved_ = 0;  // checkpoints that were due
  std::vector<Rank> dead_;
  std::vector<std::uint64_t> sent_;  // by each rank, as it last reported
  std::size_t dealt_ = 0;            // whose samples others have
  RunPosition position_;
  RunReport last_;
  RunReport evaluated_;
  std::optional<Step> bad_step_;  // in which this rank's loss was not finite
  std::optional<RunDivergence> diverged_;
  Clock::time_point begin_{};
  double waited_ = 0, combined_ = 0, loss_ = 0, losses_ = 0, images_ = 0;
  int taken_ = 0;  // steps with data, since the last report
  // Bytes of this rank: before the run and in what is no training; and of the run before it was resumed.
  std::uint64_t uncounted_ = 0, carried_ = 0;
};

template <typename T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}

}  // namespace

std::vector<RunSetting> settings_of(const Experiment& experiment) {
  std::vector<RunSetting> all;
  visit_settings(experiment, [&](const char* name, const auto& value, const char*) {
    const std::string_view key = name;
    if (key != "reports" && key != "local_test") all.push_back({name, text_of(value)});
  });
  return all;
}

RunReport run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report,
                         const CheckpointOptions& checkpoints) {
  return Run(flock, experiment, report, checkpoints).run();
}

}  // namespace starling

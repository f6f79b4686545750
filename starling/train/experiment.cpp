#include "starling/train/experiment.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>

#include "starling/base/error.h"
#include "starling/data/partition.h"
#include "starling/data/registry.h"
#include "starling/method/update.h"
#include "starling/train/batches.h"
#include "starling/train/model/model.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

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

class Run {
 public:
  Run(Flock& flock, const Experiment& experiment, const Reporter& report)
      : flock_(flock),
        experiment_(experiment),
        report_(report),
        train_(load(experiment.data, Split::train)),
        test_(load(experiment.data, Split::test)),
        shards_(make_partition(experiment.partition, train_.labels, flock.size(), experiment.seed)),
        sampler_(shards_[static_cast<std::size_t>(flock.rank())], flock.rank(), experiment.seed),
        lr_(parse_optimizer(experiment.optimizer).hyper.lr) {
    if (experiment.batch < 1) throw InvalidArgument("a batch has at least one image");
    torch::manual_seed(experiment.seed);
    model_ = make_model(experiment.model, {static_cast<std::int64_t>(train_.shape.channels),
                                           static_cast<std::int64_t>(train_.shape.height),
                                           static_cast<std::int64_t>(train_.shape.width), train_.classes});
    optimizer_ = make_torch_optimizer(experiment.optimizer, model_->parameters());
    trainer_ = std::make_unique<Trainer>(flock, *model_, *optimizer_,
                                         TrainerOptions{.method = experiment.method,
                                                        .topology = experiment.topology,
                                                        .seed = experiment.seed,
                                                        .on_loss = experiment.on_loss});
    last_.workers = flock.size();
  }

  Report run() {
    for (int epoch = 0; epoch < experiment_.epochs; ++epoch) {
      if (epoch > 0) deal_for_the_dead();
      train_epoch(epoch);
      evaluate();
    }
    return last_;
  }

 private:
  void deal_for_the_dead() {
    const std::vector<Rank> dead = agreed_dead(flock_);
    last_.workers = flock_.size() - static_cast<int>(dead.size());
    if (dead.size() == dead_) return;
    dead_ = dead.size();
    sampler_.replace(deal_again(shards_, dead, experiment_.seed)[static_cast<std::size_t>(flock_.rank())]);
  }

  void train_epoch(int epoch) {
    sampler_.start(epoch);
    const auto size = static_cast<std::size_t>(experiment_.batch);
    const std::int64_t steps = trainer_->begin_epoch(static_cast<std::int64_t>(sampler_.batches(size)));
    const std::int64_t every = std::max<std::int64_t>(1, steps / std::max(1, experiment_.reports));
    begin_ = Clock::now();
    for (std::int64_t step = 0; step < steps; ++step) {
      last_.epoch = epoch + static_cast<double>(step) / static_cast<double>(steps);
      set_learning_rate(*optimizer_, lr_ * rate_factor(experiment_, last_.epoch));
      one_step(sampler_.next(size));
      if ((step + 1) % every == 0 && step + 1 + every / 2 < steps) {
        last_.epoch = epoch + static_cast<double>(step + 1) / static_cast<double>(steps);
        tell();
      }
    }
    last_.epoch = epoch + 1;
  }

  // Who has no more data keeps answering.
  void one_step(std::span<const std::uint32_t> samples) {
    if (samples.empty()) {
      trainer_->skip();
      return;
    }
    const Batch batch = make_batch(train_, samples);
    trainer_->zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
    loss.backward();
    trainer_->step();
    loss_ += loss.item<double>();
    ++losses_;
    images_ += static_cast<double>(samples.size());
  }

  // Sums over the ranks, which all of them report.
  void summarise() {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double waited = trainer_->waited();
    std::vector<double> sums = {loss_, losses_, images_, (waited - waited_) / std::max(seconds, 1e-9)};
    flock_.allreduce(sums, Reduction::sum, "experiment/report");
    last_.step = trainer_->steps();
    last_.seconds += seconds;
    last_.loss = sums[0] / std::max(1.0, sums[1]);
    last_.images_per_second = sums[2] / std::max(seconds, 1e-9);
    last_.waiting = sums[3] / last_.workers;
    last_.consensus_distance = trainer_->consensus_distance();
    waited_ = waited;
    loss_ = losses_ = images_ = 0;
  }

  void tell() {
    summarise();
    last_.test_accuracy = -1;
    report_(last_);
    begin_ = Clock::now();
  }

  // The mean model; every rank looks at its part of the test images.
  void evaluate() {
    summarise();
    const torch::NoGradGuard no_grad;
    const auto average = trainer_->global_average();
    model_->eval();
    const View view = flock_.view();
    const auto place =
        std::find(view.members.begin(), view.members.end(), flock_.rank()) - view.members.begin();
    const auto parts = static_cast<std::ptrdiff_t>(view.members.size());
    const auto count = static_cast<std::ptrdiff_t>(test_.size());
    std::vector<std::uint32_t> mine(
        static_cast<std::size_t>(count * (place + 1) / parts - count * place / parts));
    std::iota(mine.begin(), mine.end(), static_cast<std::uint32_t>(count * place / parts));
    std::vector<double> sums = {0, 0, 0};  // right, loss, images
    constexpr std::size_t kBatch = 250;
    for (std::size_t i = 0; i < mine.size(); i += kBatch) {
      const Batch batch = make_batch(test_, std::span(mine).subspan(i, std::min(kBatch, mine.size() - i)));
      const torch::Tensor logits = model_->forward(batch.images);
      sums[0] += logits.argmax(1).eq(batch.labels).sum().item<double>();
      sums[1] +=
          torch::nn::functional::cross_entropy(
              logits, batch.labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
              .item<double>();
      sums[2] += static_cast<double>(batch.labels.size(0));
    }
    model_->train();
    flock_.allreduce(sums, Reduction::sum, "experiment/evaluation");
    last_.test_accuracy = sums[0] / sums[2];
    last_.test_loss = sums[1] / sums[2];
    report_(last_);
  }

  Flock& flock_;
  const Experiment& experiment_;
  const Reporter& report_;
  Dataset train_, test_;
  std::vector<Shard> shards_;
  ShardSampler sampler_;
  double lr_;
  ModelPtr model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  std::size_t dead_ = 0;
  Report last_;
  Clock::time_point begin_{};
  double waited_ = 0, loss_ = 0, losses_ = 0, images_ = 0;
};

}  // namespace

Report run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report) {
  return Run(flock, experiment, report).run();
}

}  // namespace starling

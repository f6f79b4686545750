#include "tool/torch/slow_worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <sys/mman.h>
#include <thread>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/launch/launcher.h"
#include "starling/method/registry.h"
#include "starling/train/task.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer.h"
#include "starling/train/worker.h"
#include "tool/worker_errors.h"
#include "tool/worker_group.h"

namespace starling::tool {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kWarmUp = 12;  // steps in which the slow worker measures the duration of a step
constexpr int kBatch = 32;

// Memory that the forked workers share with this process.
class SharedRun {
 public:
  SharedRun()
      : memory_(
            mmap(nullptr, sizeof(SlowWorkerRun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw Error("out of memory");
  }
  ~SharedRun() { munmap(memory_, sizeof(SlowWorkerRun)); }
  SharedRun(const SharedRun&) = delete;
  SharedRun& operator=(const SharedRun&) = delete;

  SlowWorkerRun& run() const { return *static_cast<SlowWorkerRun*>(memory_); }

 private:
  void* memory_;
};

class SlowWorker {
 public:
  SlowWorker(Flock& flock, const SlowWorkerPlan& plan)
      : flock_(flock),
        plan_(plan),
        slow_(flock.rank() + 1 == flock.size()),
        sampler_(plan.task->partition("iid", flock.size(), plan.seed)[static_cast<std::size_t>(flock.rank())],
                 flock.rank(), plan.seed) {
    torch::manual_seed(plan.seed);
    model_ = plan.task->make_model(plan.model);
    optimizer_ = make_torch_optimizer(plan.optimizer, model_->parameters());
    trainer_ = std::make_unique<Trainer>(
        flock, *model_, *optimizer_,
        TrainerOptions{.method = plan.method, .topology = plan.topology, .seed = plan.seed});
  }

  void train(SlowWorkerRun& run) {
    const Seconds step_time = usual_step();
    flock_.barrier();
    const double waited = trainer_->waited();
    const auto begin = std::chrono::steady_clock::now();
    const int mine = own_steps();
    for (int i = 0; i < mine; ++i) {
      step();
      if (slow_) std::this_thread::sleep_for(step_time * (plan_.slowness - 1));
    }
    const double seconds = seconds_since(begin);
    const double waiting = (trainer_->waited() - waited) / seconds;
    std::vector<double> last = {seconds};
    flock_.allreduce(last, Reduction::max, "demo/seconds");
    std::vector<double> sums = {slow_ ? 0 : waiting, slow_ ? 0.0 : mine, slow_ ? mine : 0.0};
    flock_.allreduce(sums, Reduction::sum, "demo/sums");
    const int fast = flock_.size() - 1;
    const double accuracy = evaluate();
    if (flock_.rank() == 0) run = {last[0], sums[0] / fast, accuracy, sums[1] / fast, sums[2]};
  }

 private:
  void step() {
    auto samples = sampler_.next(kBatch);
    if (samples.empty()) {
      sampler_.start(++epoch_);
      samples = sampler_.next(kBatch);
    }
    trainer_->zero_grad();
    plan_.task->loss(*model_, samples).backward();
    trainer_->step();
  }

  // The duration of a step without waiting for other ranks.
  Seconds usual_step() {
    std::vector<double> seconds;
    sampler_.start(epoch_);
    for (int i = 0; i < kWarmUp; ++i) {
      const double waited = trainer_->waited();
      const double taken = seconds_of([this] { step(); });
      seconds.push_back(taken - (trainer_->waited() - waited));
    }
    return Seconds(std::max(0.0, median(seconds)));
  }

  int own_steps() const {
    if (!make_method(plan_.method)->asynchronous()) return plan_.steps;
    const int workers = static_cast<int>(flock_.size());
    const double speeds = workers - 1 + 1.0 / plan_.slowness;
    const int fast = static_cast<int>(std::lround(workers * plan_.steps / speeds));
    return slow_ ? std::max(1, workers * plan_.steps - (workers - 1) * fast) : fast;
  }

  double evaluate() {
    trainer_->settle();
    model_->eval();
    const auto average = trainer_->global_average();
    const std::size_t count = plan_.task->size(Split::test);
    const auto part = [&](Rank rank) {
      return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(flock_.size());
    };
    std::vector<std::uint32_t> samples(part(flock_.rank() + 1) - part(flock_.rank()));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(part(flock_.rank())));
    const Task::Evaluation own = plan_.task->evaluate(*model_, samples);
    std::vector<double> sums = {own.correct, own.count};
    flock_.allreduce(sums, Reduction::sum, "demo/accuracy");
    return sums[0] / sums[1];
  }

  Flock& flock_;
  const SlowWorkerPlan& plan_;
  bool slow_;
  ShardSampler sampler_;
  std::int64_t epoch_ = 0;
  ModelPtr model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

SlowWorkerRun train_beside_slow_worker(const SlowWorkerPlan& plan) {
  const SharedRun shared;
  const WorkerErrors errors;
  launch::LaunchOptions job;
  job.ranks = plan.workers;
  job.body = [&] {
    Flock flock = join();
    try {
      prepare_worker(plan.threads);
      SlowWorker(flock, plan).train(shared.run());
      return 0;
    } catch (const std::exception& error) {
      report_worker_error(flock.rank(), error.what(), false);
      return 2;
    }
  };
  job.environment = training_environment(plan.threads);
  job.environment.push_back(errors.variable());
  job.environment.push_back(environment::kLog.assignment("quiet"));
  job.share_output = true;
  const int status = launch::launch(job);
  errors.print();
  if (status != 0) throw Error(fmt::format("the training with {} beside a slow worker failed", plan.method));
  return shared.run();
}

}  // namespace starling::tool

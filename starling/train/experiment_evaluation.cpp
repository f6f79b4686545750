#include "starling/train/experiment_evaluation.h"

#include <algorithm>
#include <numeric>

namespace starling::train {
namespace {

std::vector<std::uint32_t> samples_from(std::size_t first, std::size_t last) {
  std::vector<std::uint32_t> all(last - first);
  std::iota(all.begin(), all.end(), static_cast<std::uint32_t>(first));
  return all;
}

}  // namespace

void evaluate_run(Trainer& trainer, const Task& task, Model& model, int own_samples, RunReport& report) {
  Flock& flock = trainer.flock();
  const View view = flock.view();
  const auto position = static_cast<std::size_t>(
      std::find(view.members.begin(), view.members.end(), flock.rank()) - view.members.begin());
  const std::size_t count = task.size(Split::test);
  const std::size_t parts = view.members.size();
  const std::size_t on_own = std::min(count, static_cast<std::size_t>(own_samples));
  trainer.settle();
  model.eval();
  double local = 0;
  if (on_own > 0) {
    const Task::Evaluation own = task.evaluate(model, samples_from(0, on_own));
    local = own.correct / own.count;
  }
  std::vector<double> sums = {0, 0, 0, local, 1, 0, 0};
  {
    const auto average = trainer.global_average();
    // In two parts: the samples that own models are evaluated on, and the rest.
    const std::size_t first = count * position / parts;
    const std::size_t last = count * (position + 1) / parts;
    const std::size_t between = std::clamp(on_own, first, last);
    const Task::Evaluation shared = task.evaluate(model, samples_from(first, between));
    const Task::Evaluation rest = task.evaluate(model, samples_from(between, last));
    sums[0] = shared.correct + rest.correct;
    sums[1] = shared.loss + rest.loss;
    sums[2] = shared.count + rest.count;
    sums[5] = shared.correct;
    sums[6] = shared.count;
  }
  model.train();
  flock.allreduce(sums, Reduction::sum, "experiment/evaluation");
  report.test_accuracy = sums[0] / sums[2];
  report.test_loss = sums[1] / sums[2];
  if (on_own == 0) return;
  std::vector<double> extremes = {local, -local};
  flock.allreduce(extremes, Reduction::max, "experiment/local");
  report.local_accuracy = sums[3] / sums[4];
  report.local_accuracy_most = extremes[0];
  report.local_accuracy_least = -extremes[1];
  report.local_mean_accuracy = sums[5] / sums[6];
}

}  // namespace starling::train

#include "tool/torch/demo_verdicts.h"

#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/report/number_text.h"

namespace starling::tool {
namespace {

struct Comparison {
  double ours, theirs;  // fractions of the test samples
  double noise;         // two standard errors of their difference

  bool same() const { return std::abs(ours - theirs) <= noise; }
  bool better() const { return !same() && ours > theirs; }
  std::string text() const {
    return fmt::format("{:.2f} % against {:.2f} % (±{:.2f} points are chance)", 100 * ours, 100 * theirs,
                       100 * noise);
  }
};

Comparison compare(double ours, double theirs, std::size_t samples) {
  const auto variance = [&](double share) { return share * (1 - share) / static_cast<double>(samples); };
  return {ours, theirs, 2 * std::sqrt(variance(ours) + variance(theirs))};
}

double accuracy(const RunLog& run) {
  const RunReport* last = run.last_evaluation();
  if (last == nullptr) throw Error(fmt::format("{} has no evaluation", run.path));
  return *last->test_accuracy;
}

double seconds(const RunLog& run) {
  return run.reports.empty() ? 0 : run.reports.back().seconds;
}

}  // namespace

Verdict accuracy_verdict(const RunLog& neighbors, const RunLog& all_reduce, std::size_t test_samples) {
  const Comparison accuracies = compare(accuracy(neighbors), accuracy(all_reduce), test_samples);
  return {accuracies.same()     ? "The same accuracy as all-reduce"
          : accuracies.better() ? "More accurate than all-reduce"
                                : "Less accurate than all-reduce",
          fmt::format("{}. It took {}, all-reduce {}. Each worker averaged with one neighbor per step.",
                      accuracies.text(), human_time(seconds(neighbors)), human_time(seconds(all_reduce))),
          !accuracies.same() && !accuracies.better()};
}

Verdict death_verdict(const RunLog& killed, const RunLog& whole, Rank victim, std::size_t test_samples) {
  if (killed.lost.empty())
    return {"No worker died",
            fmt::format("worker {} should have been killed, but the run's log does not report it.", victim),
            true};
  const Comparison accuracies = compare(accuracy(killed), accuracy(whole), test_samples);
  const PeerFailure& death = killed.lost.front();
  const int left = killed.reports.back().workers;
  return {
      accuracies.same()     ? "A killed worker costs no accuracy"
      : accuracies.better() ? "A killed worker did not hurt"
                            : "A killed worker costs accuracy",
      fmt::format(
          "worker {} died by step {}, and {} of {} continued to the end. The accuracy was {}. It took {}, "
          "and {} with all workers alive.",
          death.rank, death.step, left, killed.header.workers, accuracies.text(), human_time(seconds(killed)),
          human_time(seconds(whole))),
      !accuracies.same() && !accuracies.better()};
}

Verdict slow_worker_verdict(const SlowWorkerRun& all_reduce, const SlowWorkerRun& asynchronous, int workers,
                            int slowness, std::size_t test_samples) {
  const Comparison accuracies = compare(asynchronous.accuracy, all_reduce.accuracy, test_samples);
  const double faster = all_reduce.seconds / asynchronous.seconds;
  const bool shorter = faster > 1.02 && asynchronous.waiting < all_reduce.waiting;
  return {
      shorter ? fmt::format("A slow worker keeps nobody waiting, {:.1f}x as fast as all-reduce", faster)
              : fmt::format("A slow worker slows the others down, {:.1f}x as fast as all-reduce", faster),
      fmt::format(
          "beside a worker of 1/{} of the speed, the {} others waited {:.0f} % of the time in "
          "all-reduce and {:.0f} % in "
          "asynchronous averages (ad-psgd). All-reduce took {} for the batches that ad-psgd did in {}; the "
          "accuracy of ad-psgd was {}.",
          slowness, workers - 1, 100 * all_reduce.waiting, 100 * asynchronous.waiting,
          human_time(all_reduce.seconds), human_time(asynchronous.seconds), accuracies.text()),
      !shorter};
}

}  // namespace starling::tool

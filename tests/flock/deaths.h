#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric/harness.h"
#include "starling/base/types.h"

namespace starling::flock {

/// The number of runs of a soak: a few in everyday tests, STARLING_SOAK=200 in `./run soak`.
unsigned soak_runs();

/// The failures injected into the ranks of a run.
struct Mishaps {
  std::map<Rank, std::uint64_t> kill_at_post = {};  // SIGKILL before the k-th post, counted from 0
  std::map<Rank, unsigned> kill_after = {};         // microseconds after joining
  std::map<Rank, unsigned> stop_after = {};         // SIGSTOP, and SIGCONT 150 ms later
};

/// A run of real processes with injected failures. Each rank logs its steps and results to memory shared with
/// the test, so the logs of killed ranks survive.
class DeathRun {
 public:
  /// What one rank did in one step.
  struct Row {
    Step step = 0;
    std::uint32_t epoch = 0;
    double self_weight = 0;
    std::map<Rank, double> sources;
    std::set<Rank> destinations;
    double sum() const;
  };

  DeathRun(Rank size, Mishaps mishaps, Step steps);
  ~DeathRun();
  DeathRun(const DeathRun&) = delete;
  DeathRun& operator=(const DeathRun&) = delete;

  /// Does `steps` neighbor averages of one number per rank, with the policy `reweight`.
  void neighbor_averages(const std::string& spec);
  /// The same with the policy `raise`.
  void neighbor_averages_that_raise(const std::string& spec);
  /// Does `steps` rounds of every collective and logs the results.
  void collectives();

  /// Anything else, on the first of these that starts processes.
  void run(const RankBody& body, const std::vector<Launcher>& all = launchers());

  Rank size() const { return size_; }
  /// Whether messages posted just before a rank was killed reach the survivors.
  bool shares() const { return shares_; }
  Step steps() const { return steps_; }
  const RankEnd& end(Rank rank) const { return ends_[static_cast<std::size_t>(rank)]; }
  /// The ranks that were not killed.
  std::vector<Rank> survivors() const;
  std::vector<Rank> members_after(std::uint32_t epoch) const;
  std::vector<Row> rows(Rank rank) const;
  double result(Rank rank) const;

  /// Describes what is wrong with the survivors' steps, or returns "". In each step rows must sum to one, all
  /// ranks must be in the same view, sources and destinations must match, and after the agreed step every
  /// rank must follow `spec` over the live members.
  std::string problem_with_steps(const std::string& spec) const;
  /// Describes what is wrong with the collectives, or returns "". All survivors must succeed with the same
  /// results.
  std::string problem_with_results() const;
  /// All values that a rank's collectives returned, in order.
  std::vector<double> results(Rank rank) const;

 private:
  struct Log;
  Log& log(Rank rank) const;

  Rank size_;
  Mishaps mishaps_;
  Step steps_;
  std::vector<RankEnd> ends_;
  bool shares_ = true;
  Log* logs_;
};

}  // namespace starling::flock

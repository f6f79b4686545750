#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabric/harness.h"
#include "starling/base/types.h"

namespace starling::flock {

/// How many runs a soak takes: a few in the everyday tests, STARLING_SOAK=200 in `./run soak`.
unsigned soak_runs();

/// What happens to the ranks of a run.
struct Mishaps {
  std::map<Rank, std::uint64_t> kill_at_post = {};  // SIGKILL before the k-th post, counted from 0
  std::map<Rank, unsigned> kill_after = {};         // microseconds after joining
  std::map<Rank, unsigned> stop_after = {};         // SIGSTOP, and SIGCONT 150 ms later
};

/// A run of real processes to whom something happens, and what each rank did until then: written to memory
/// that the test shares with them, so that the dead speak too.
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

  /// `steps` neighbor averages of one number per rank, reweighting after deaths.
  void neighbor_averages(const std::string& spec);
  /// The same, but a death is an error.
  void neighbor_averages_that_raise(const std::string& spec);
  /// `steps` rounds of every collective; what came out is kept.
  void collectives();

  /// Anything else, on the first of these that starts processes.
  void run(const RankBody& body, const std::vector<Launcher>& all = launchers());

  Rank size() const { return size_; }
  /// Whether what the dead gave just before has reached the living.
  bool shares() const { return shares_; }
  Step steps() const { return steps_; }
  const RankEnd& end(Rank rank) const { return ends_[static_cast<std::size_t>(rank)]; }
  /// Those who were not killed.
  std::vector<Rank> survivors() const;
  std::vector<Rank> members_after(std::uint32_t epoch) const;
  std::vector<Row> rows(Rank rank) const;
  double result(Rank rank) const;

  /// What is wrong with the steps of the survivors, or "": in each, rows sum to one, all are in the same
  /// view, who was heard did tell, and from the agreed step on everybody follows `spec` over the live
  /// members.
  std::string problem_with_steps(const std::string& spec) const;
  /// What is wrong with the collectives, or "": all survivors ended well with the same results.
  std::string problem_with_results() const;
  /// Everything a rank's collectives returned, one after another.
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

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/contenders.h"

namespace starling::bench {

/// What we promise of a case; 0 where nothing is promised.
struct Bars {
  double ceiling = 0;  // share of the ceiling's speed, at least
  double mpi = 0;      // times as fast as Open MPI, at least
  double gloo = 0;     // times as fast as gloo's all-reduce, at least
  double most = 0;     // the measured value itself: seconds, or a share of a processor
};

struct CommCase {
  enum class Kind { operation, idle, stopped, start_up };

  std::string name;
  Kind kind = Kind::operation;
  Work work;
  std::vector<Contender> contenders;  // ours first
  Bars bars;

  std::size_t bytes() const { return work.elements * sizeof(float); }
  /// "one-peer n=2 100MB": what `--only` looks in.
  std::string label() const;
  /// "80 % of the ceiling, 1.3x MPI".
  std::string bars_text() const;
};

/// All cases, on these cores. `quick`: the same with next to no data, to see that everything works.
std::vector<CommCase> comm_cases(const std::vector<int>& cpus, bool quick);

/// What came out of a case. Values are seconds of one operation (of the start), or a share of a processor.
struct CommResult {
  CommCase what;
  std::vector<std::vector<double>> rounds{kContenders};  // by contender; empty where it did not run
  bool failed = false;                                   // we did not reach the end

  Contender ours() const { return what.contenders.front(); }
  const std::vector<double>& of(Contender contender) const {
    return rounds[static_cast<std::size_t>(contender)];
  }
  std::vector<double>& of(Contender contender) { return rounds[static_cast<std::size_t>(contender)]; }

  /// How many times as fast as `peer` we are: the median of the rounds' ratios, for what disturbs a round
  /// disturbs both.
  std::optional<double> speed_against(Contender peer) const;
  std::optional<double> ratio_of_medians(Contender peer) const;
  std::optional<double> share_of_ceiling() const;
  /// Nothing where something that the bars need was not measured and the rest is met.
  std::optional<bool> met() const;
};

}  // namespace starling::bench

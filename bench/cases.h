#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/contenders.h"

namespace starling::bench {

/// The promised speeds of a case; 0 if nothing is promised.
struct Bars {
  double ceiling = 0;  // at least this fraction of the ceiling's speed
  double mpi = 0;      // times as fast as Open MPI, at least
  double gloo = 0;     // times as fast as gloo's all-reduce, at least
  double most = 0;     // the maximum of the value itself: seconds, or a fraction of a processor
};

struct CommCase {
  enum class Kind { operation, idle, stopped, start_up };

  std::string name;
  Kind kind = Kind::operation;
  Work work;
  std::vector<Contender> contenders;  // ours first
  Bars bars;

  std::size_t bytes() const { return work.elements * sizeof(float); }
  /// A label such as "one-peer n=2 100MB", which `--only` searches.
  std::string label() const;
  /// "80 % of the ceiling, 1.3x MPI".
  std::string bars_text() const;
};

/// All cases, on these cores. `quick`: the same with almost no data, to check that everything works.
std::vector<CommCase> comm_cases(const std::vector<int>& cpus, bool quick);

/// The result of a case. Values are seconds per operation (of the start), or a fraction of a processor.
struct CommResult {
  CommCase what;
  std::vector<std::vector<double>> rounds{kContenders};  // by contender; empty if it did not run
  bool failed = false;                                   // Starling did not finish

  Contender ours() const { return what.contenders.front(); }
  const std::vector<double>& of(Contender contender) const {
    return rounds[static_cast<std::size_t>(contender)];
  }
  std::vector<double>& of(Contender contender) { return rounds[static_cast<std::size_t>(contender)]; }

  /// How many times as fast as `peer` Starling is: the median of the rounds' ratios, because disturbances of
  /// a round affect both.
  std::optional<double> speed_against(Contender peer) const;
  std::optional<double> ratio_of_medians(Contender peer) const;
  std::optional<double> share_of_ceiling() const;
  /// Empty if something that the bars need was not measured and all other bars are met.
  std::optional<bool> met() const;
};

}  // namespace starling::bench

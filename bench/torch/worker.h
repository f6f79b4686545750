#pragma once

#include <string>

namespace starling::bench {

/// The networks of the training benchmarks.
struct TrainingWork {
  std::string name;   // as the peer calls it, too
  std::string model;  // the grammar's
  int channels, height, width, classes;
  int batch;
};
const TrainingWork& training_work(const std::string& name);

/// One rank of a training benchmark: reads "METHOD TOPOLOGY STEPS [OPTION=VALUE...]" on standard input, where
/// METHOD may be `alone` (torch's own optimizer and nothing else) or `gradients`; answers "SECONDS WAITED",
/// or "cannot REASON" when such a trainer cannot be made. Options:
///   message=T               what models travel as
///   on_peer_failure=reweight        training goes on without ranks that die
///   late=MS,PERIOD,PHASE    waits so many milliseconds in the steps that leave PHASE when divided by PERIOD
///   marks=1                 the answer goes on with the moment at which every step ended (CLOCK_MONOTONIC,
///   seconds)
void be_training_worker(const std::string& work, int threads);

/// One rank of a benchmark of operations: reads "one-peer ELEMENTS REPEATS" (neighbor averages on the
/// one-peer exponential graph) or "all-reduce ELEMENTS REPEATS"; answers the seconds.
void be_operations_worker();

}  // namespace starling::bench

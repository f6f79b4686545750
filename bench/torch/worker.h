#pragma once

#include <string>

namespace starling::bench {

/// The networks of the training benchmarks.
struct TrainingWork {
  std::string name;   // the same as in the peer's program
  std::string model;  // in the spec grammar
  int channels, height, width, classes;
  int batch;
};
const TrainingWork& training_work(const std::string& name);

/// Runs one rank of a training benchmark: reads "METHOD TOPOLOGY STEPS [OPTION=VALUE...]" from standard
/// input, where METHOD may be `alone` (only torch's own optimizer) or `gradients`; answers "SECONDS WAITED",
/// or "cannot REASON" if such a trainer cannot be made. Options:
///   message=T                     wire format of model messages
///   on_peer_failure=reweight      training continues without ranks that die
///   late=MS,PERIOD,PHASE          waits MS milliseconds in the steps with remainder PHASE modulo PERIOD
///   marks=1                       the answer also has the time at which every step ended (CLOCK_MONOTONIC,
///                                 seconds)
void be_training_worker(const std::string& work, int threads);

/// Runs one rank of a benchmark of operations: reads "one-peer ELEMENTS REPEATS" (neighbor averages on the
/// one-peer exponential graph) or "all-reduce ELEMENTS REPEATS"; answers the seconds.
void be_operations_worker();

}  // namespace starling::bench

#pragma once

#include <string>

namespace starling::tool {

/// The networks of the training benchmarks.
struct TrainingWork {
  std::string name;   // as the peer calls it, too
  std::string model;  // the grammar's
  int channels, height, width, classes;
  int batch;
};
const TrainingWork& training_work(const std::string& name);

/// One rank of a training benchmark: reads "WHO STEPS" on standard input, where WHO is `alone` (torch's own
/// optimizer and nothing else) or `METHOD TOPOLOGY`; answers "SECONDS WAITED".
void be_training_worker(const std::string& work, int threads);

}  // namespace starling::tool

#pragma once

#include <optional>

#include "starling/train/experiment.h"
#include "tool/settings.h"

namespace starling::tool {

/// Everything that `starling train` can be told.
struct TrainSettings {
  Experiment experiment;
  int workers = 4;
  std::optional<double> lr;     // in place of the optimizer's own
  std::optional<double> alpha;  // in place of the partition
  std::string metrics;
  std::string report;
  std::string checkpoint;
  double checkpoint_every = 1;
  int keep = 3;
  int threads = 0;  // per worker; 0: the cores shared out

  /// The names and places of all of these.
  Settings table();
  /// Of those that say how to train, and not what becomes of the results: what a sweep may vary.
  Settings training_table();
  /// `lr` and `alpha` go into the optimizer and the partition. Where that says two things the command line
  /// wins over the file; throws Error where neither does.
  Experiment complete(const Settings& table) const;
};

}  // namespace starling::tool

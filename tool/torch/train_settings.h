#pragma once

#include "starling/train/experiment.h"
#include "tool/settings.h"

namespace starling::tool {

/// Everything that `starling train` can be told.
struct TrainSettings {
  Experiment experiment;
  int workers = 4;
  double lr = 0;     // 0: the optimizer's own
  double alpha = 0;  // 0: as the partition says
  std::string metrics;
  std::string report;
  std::string checkpoint;
  double checkpoint_every = 1;
  int keep = 3;
  int threads = 0;  // per worker; 0: the cores shared out

  /// The names and places of all of these.
  Settings table();
  /// `lr` and `alpha` go into the optimizer and the partition; throws Error where that says two things.
  Experiment complete() const;
};

}  // namespace starling::tool

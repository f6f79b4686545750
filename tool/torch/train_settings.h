#pragma once

#include <optional>

#include "starling/train/experiment.h"
#include "tool/settings.h"

namespace starling::tool {

/// All settings of `starling train`.
struct TrainSettings {
  Experiment experiment;
  int workers = 4;
  std::optional<double> lr;     // overrides the optimizer's own
  std::optional<double> alpha;  // overrides the partition
  std::string metrics;
  std::string report;
  std::string checkpoint;
  double checkpoint_every = 1;
  int keep = 3;
  std::string processes = "auto";
  int threads = 0;  // per worker; 0: the cores divided by the workers

  /// The names and targets of all settings.
  Settings table();
  /// The settings that determine the training, not the outputs; a sweep may vary these.
  Settings training_table();
  /// Puts `lr` and `alpha` into the optimizer and the partition. If these contradict each other, the command
  /// line takes precedence over the file; throws Error if neither does.
  Experiment complete(const Settings& table) const;
};

}  // namespace starling::tool

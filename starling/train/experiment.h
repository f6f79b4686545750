#pragma once

#include <functional>
#include <string>

#include "starling/flock/flock.h"

namespace starling {

/// One training run on a data set, the same on every rank.
struct Experiment {
  std::string data = "mnist";
  std::string model = "lenet";
  std::string method = "dsgd-awc";
  std::string topology = "one-peer-exponential";
  std::string optimizer = "momentum(lr=0.05)";
  std::string partition = "iid";
  int batch = 32;  // per worker
  int epochs = 2;
  double warmup = 0;   // epochs in which the learning rate rises from zero
  bool cosine = true;  // it falls to zero along a cosine afterwards; else it stays
  std::uint64_t seed = 1;
  std::string on_loss = "raise";
  int reports = 10;  // per epoch, beside the evaluation at its end
};

/// What is known after some steps; the same on every rank.
struct Report {
  Step step = 0;
  double epoch = 0;              // 1.5: in the middle of the second
  double seconds = 0;            // of training, without evaluations
  double loss = 0;               // mean over the ranks since the last report
  double images_per_second = 0;  // of all ranks together
  double consensus_distance = 0;
  double waiting = 0;         // share of the ranks' time spent waiting for others
  double test_accuracy = -1;  // of the mean model, at the end of an epoch; -1: not evaluated
  double test_loss = 0;
  int workers = 0;  // alive
};
using Reporter = std::function<void(const Report&)>;

/// Trains; `report` is called on every rank. Returns the last evaluation.
Report run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report);

}  // namespace starling

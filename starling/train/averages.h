#pragma once

#include <string>
#include <vector>

#include "starling/train/training_step.h"

namespace starling::train {

/// Collectives on whole models: broadcast, distance, and the average for an evaluation. All functions but
/// revert() and keep() are collectives. Part of a Trainer.
class Averages {
 public:
  Averages(Replica& replica, TrainingStep& step) : replica_(replica), step_(step) {}

  void broadcast_parameters(Rank root);
  void broadcast_optimizer_state(Rank root);
  /// See Trainer::consensus_distance().
  double consensus_distance();

  /// Replaces the parameters, and the buffers according to the options, by the flock's average, until
  /// revert() restores this rank's own model or keep() makes the average every rank's model.
  void average();
  void revert();
  void keep();

 private:
  std::vector<torch::Tensor> floating_buffers() const;
  void average_buffers(const std::string& name);
  void warn_of_nonfinite_buffers();

  Replica& replica_;
  TrainingStep& step_;
  std::vector<torch::Tensor> own_models_;  // by bucket, while averaged
  std::vector<torch::Tensor> own_buffers_;
  bool warned_of_buffers_ = false;
};

}  // namespace starling::train

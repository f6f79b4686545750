#pragma once

#include "starling/method/driver.h"
#include "starling/simulate/channel.h"
#include "starling/simulate/training.h"

namespace starling::simulate {

/// A simulated worker: its parameters, gradient and driver.
class TrainingNode {
 public:
  TrainingNode(const Objective& objective, const TrainingOptions& options, SimulatedNetwork& network,
               Rank rank, const std::string& method);

  void begin();
  /// Computes the gradient of this step, which takes modeled time.
  void compute();
  bool try_finish() { return driver_->try_finish(); }
  Step steps() const { return driver_->step(); }
  /// The model for evaluation.
  void read_model(std::span<double> out);

  Driver& driver() { return *driver_; }
  SimulatedChannel& channel() { return *channel_; }

 private:
  const Objective& objective_;
  const TrainingOptions& options_;
  const TimeModel& time_;
  Hypers hypers_;
  DType dtype_;
  std::vector<double> wide_, wide_gradient_;
  std::vector<float> narrow_, narrow_gradient_;
  SimulatedChannel* channel_ = nullptr;
  std::unique_ptr<Driver> driver_;
};

}  // namespace starling::simulate

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/method/update.h"
#include "starling/train/bucket.h"

namespace starling {

/// The local optimizers of a torch optimizer's parameters. torch's SGD, Adam and AdamW have native updates,
/// which do in one pass what torch does in many; every other optimizer runs as it is.
class TorchOptimizer {
 public:
  /// Throws InvalidArgument for optimizers that take more than one look at the loss.
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  /// "sgd", "adam", "adamw", or "" for any other.
  const std::string& native() const { return native_; }
  const Hypers& hypers() const { return hypers_; }
  /// The settings may have changed (learning rate schedules): reads them again.
  void read_settings();
  /// The update of one bucket.
  UpdatePtr make_update(const std::vector<Placed>& all, const Bucket& bucket) const;

  /// Native state -> the optimizer's own, so that it can be saved; and back. `updates` are the buckets'.
  void export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) const;
  void import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) const;

 private:
  torch::optim::Optimizer& optimizer_;
  std::string native_;
  Hypers hypers_;
};

}  // namespace starling

#pragma once

#include "starling/train/local_optimizer.h"

namespace starling {

/// libtorch's optimizers.
class TorchOptimizer final : public LocalOptimizer {
 public:
  /// Throws InvalidArgument for optimizers that take more than one look at the loss.
  explicit TorchOptimizer(torch::optim::Optimizer& optimizer);

  std::string name() const override;
  std::vector<std::vector<torch::Tensor>> groups() const override;
  std::vector<Settings> settings() const override;
  void read_settings() override;
  void export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) override;
  void import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) override;
  std::string saved(bool memory) const override;
  void restore(const std::string& text, bool memory) override;

 private:
  void step(std::vector<std::vector<torch::Tensor>>& groups) override;

  Settings settings_of(std::size_t group) const;

  torch::optim::Optimizer& optimizer_;
  mutable bool serializes_ = true;  // its options do
};

}  // namespace starling

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/train/local_optimizer.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// libtorch's optimizers, as a Trainer uses them.
class TorchOptimizer final : public LocalOptimizer {
 public:
  /// Throws InvalidArgument for optimizers that compute the loss more than once per step.
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
  mutable bool serializes_ = true;  // its options implement serialize()
};

/// A torch optimizer from a spec: `momentum(lr=0.05)`, `adamw(lr=0.001)`.
std::unique_ptr<torch::optim::Optimizer> make_torch_optimizer(std::string_view text,
                                                              const std::vector<torch::Tensor>& parameters);

/// Sets the learning rate of every group.
void set_learning_rate(torch::optim::Optimizer& optimizer, double lr);

/// The optimizer's settings and, with `memory`, its state as text; and the reverse.
std::string saved_optimizer(const torch::optim::Optimizer& optimizer, bool memory = true);
void restore_optimizer(torch::optim::Optimizer& optimizer, const std::string& text, bool memory = true);

}  // namespace starling::train

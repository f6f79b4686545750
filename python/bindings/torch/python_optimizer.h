#pragma once

#include <torch/extension.h>

#include "starling/train/local_optimizer.h"

namespace starling::python {

/// A torch.optim optimizer of Python. Every function that accesses it takes the interpreter lock.
class PythonOptimizer final : public LocalOptimizer {
 public:
  /// `reference` is a weak reference, since the optimizer owns the trainer. `native`: "sgd", "adam", "adamw"
  /// or "". `step` steps every parameter that has a gradient once.
  PythonOptimizer(py::object reference, std::string name, std::string native, py::function step);
  ~PythonOptimizer() override;

  std::string name() const override { return name_; }
  std::vector<std::vector<torch::Tensor>> groups() const override;
  std::vector<Settings> settings() const override;
  void read_settings() override;
  bool takes_all_at_once() const override { return true; }
  void export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) override;
  void import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) override;
  std::string saved(bool memory) const override;
  void restore(const std::string& text, bool memory) override;

 private:
  void step(std::vector<std::vector<torch::Tensor>>& groups) override;

  py::object optimizer() const;

  py::object reference_;
  std::string name_;
  py::function step_;
};

}  // namespace starling::python

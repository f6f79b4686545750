#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "starling/train/bucket.h"

namespace starling::train {

/// Calls a function when a parameter's gradient has been accumulated, on the thread that runs backward.
class GradientHooks {
 public:
  /// Called after `part` was added to the parameter's gradient.
  using Callback = std::function<void(std::size_t parameter, const torch::Tensor& part)>;

  GradientHooks(const std::vector<Placed>& parameters, const Callback& callback);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct Hook {
    std::shared_ptr<torch::autograd::Node> accumulator;  // kept: a parameter only refers to it weakly
    std::uintptr_t key;
  };
  std::vector<Hook> hooks_;
};

}  // namespace starling::train

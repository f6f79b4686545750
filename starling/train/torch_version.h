#pragma once

// What differs between the versions of torch that we build against (1.13 to 2.x) lies here.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>
#include <torch/version.h>

namespace starling::train {

/// Under what an optimizer keeps the state of a parameter.
inline auto state_key(const torch::Tensor& parameter) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

}  // namespace starling::train

#pragma once

// The part of torch that every file here includes, and the differences between its versions (1.13 to 2.x).
// Including all of torch/torch.h would double the compile time.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/version.h>

namespace starling::train {

/// The key under which an optimizer keeps the state of a parameter.
inline auto state_key(const torch::Tensor& parameter) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

}  // namespace starling::train

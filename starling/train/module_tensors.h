#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/floors.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// The named tensors of a module of libtorch or Python. These are functions, because modules replace their
/// tensors.
struct ModuleTensors {
  using Named = std::vector<std::pair<std::string, torch::Tensor>>;
  std::function<Named()> parameters;
  std::function<Named()> buffers;
};

/// The tensors of a libtorch module, which must outlive the result.
ModuleTensors tensors_of(const torch::nn::Module& module);

}  // namespace starling::train

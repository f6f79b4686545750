#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "starling/train/torch_version.h"

namespace starling {

/// What a Trainer needs to know of a module, be it libtorch's or Python's. Asked again whenever it matters:
/// modules replace their tensors.
struct ModuleTensors {
  using Named = std::vector<std::pair<std::string, torch::Tensor>>;
  std::function<Named()> parameters;
  std::function<Named()> buffers;
};

/// Of libtorch's, which must live as long.
ModuleTensors tensors_of(const torch::nn::Module& module);

}  // namespace starling

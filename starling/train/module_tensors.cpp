#include "starling/train/module_tensors.h"

namespace starling::train {

ModuleTensors tensors_of(const torch::nn::Module& module) {
  const auto defined = [](const torch::OrderedDict<std::string, torch::Tensor>& items) {
    ModuleTensors::Named named;
    for (const auto& item : items)
      if (item.value().defined()) named.emplace_back(item.key(), item.value());
    return named;
  };
  return {[&module, defined] { return defined(module.named_parameters()); },
          [&module, defined] { return defined(module.named_buffers()); }};
}

}  // namespace starling::train

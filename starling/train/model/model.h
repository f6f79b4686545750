#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/train/torch_version.h"

namespace starling {

/// A network from a batch to logits.
class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& batch) = 0;
};
using ModelPtr = std::shared_ptr<Model>;

/// What a model is made for.
struct ModelSetting {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;
};

struct ModelFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<ModelPtr(const Parameters&, const ModelSetting&)> make;
};

/// `make_model("mlp(layers=8, width=1024)", setting)`; throws InvalidArgument listing what is valid. Its
/// start is drawn from torch's generator: seed that first.
ModelPtr make_model(std::string_view text, const ModelSetting& setting);
const std::vector<ModelFamily>& model_families();

// One per file of this folder.
ModelFamily lenet_family();
ModelFamily mlp_family();
ModelFamily resnet20_family();

}  // namespace starling

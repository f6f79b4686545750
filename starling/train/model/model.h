#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// A network from a batch to logits.
class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& batch) = 0;
};
using ModelPtr = std::shared_ptr<Model>;

/// The kind of a batch: images (count x channels x height x width, to count x classes logits), or windows of
/// a text (count x length numbers of characters, to count x length x classes).
enum class ModelInput { images, text };

/// The data that a model is built for.
struct ModelSetting {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;  // for a text: its characters
  ModelInput input = ModelInput::images;
  std::int64_t length = 64;  // of a text's windows
};

struct ModelFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<ModelPtr(const Parameters&, const ModelSetting&)> make;
  ModelInput input = ModelInput::images;  // the kind of batches that it takes
  std::vector<std::string> aliases = {};
};

/// Makes a model, as in `make_model("mlp(layers=8, width=1024)", setting)`; throws InvalidArgument with what
/// is valid, also for the setting's input. Initialized from torch's random generator, so seed that first.
ModelPtr make_model(std::string_view text, const ModelSetting& setting);
/// Throws what make_model would throw for this name, or for data of this kind.
const ModelFamily& find_model(const Spec& spec, ModelInput input);
std::vector<ModelFamily> model_families();

/// Registers a model under a new name. Thread-safe.
void register_model(ModelFamily family);

/// The canonical spelling, equal for all specs of the same model, with defaults filled in.
std::string canonical_model(std::string_view text);

// One per file in this folder.
ModelFamily lenet_family();
ModelFamily mlp_family();
ModelFamily resnet20_family();
ModelFamily transformer_family();
ModelFamily vgg11_family();

}  // namespace starling::train

namespace starling {
using train::make_model;
using train::Model;
using train::ModelPtr;
using train::ModelSetting;
}  // namespace starling

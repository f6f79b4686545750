#include "starling/train/model/model.h"

#include <fmt/format.h>

#include "starling/base/registry.h"

namespace starling::train {
namespace {

const char* to_string(ModelInput input) {
  return input == ModelInput::images ? "images" : "text";
}

Registry<ModelFamily>& all_models() {
  static Registry<ModelFamily> instance(
      "model", {lenet_family(), mlp_family(), resnet20_family(), vgg11_family(), transformer_family()});
  return instance;
}

}  // namespace

std::vector<ModelFamily> model_families() {
  return all_models().entries();
}

void register_model(ModelFamily family) {
  all_models().add(std::move(family));
}

std::string canonical_model(std::string_view text) {
  return all_models().canonical(parse_spec(text)).to_string();
}

const ModelFamily& find_model(const Spec& spec, ModelInput input) {
  const ModelFamily& named = all_models().find(spec);
  if (named.input == input) return named;
  std::vector<std::string> fitting;
  for (const ModelFamily& family : model_families())
    if (family.input == input) fitting.push_back(family.name);
  throw InvalidArgument(fmt::format("{} learns {}, and this data is {}; valid are {}", named.name,
                                    to_string(named.input), to_string(input), join_words(fitting)));
}

ModelPtr make_model(std::string_view text, const ModelSetting& setting) {
  const Spec spec = parse_spec(text);
  const ModelFamily& family = find_model(spec, setting.input);
  return family.make(Parameters(spec, family.parameters), setting);
}

}  // namespace starling::train

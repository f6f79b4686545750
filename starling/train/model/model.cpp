#include "starling/train/model/model.h"

#include <fmt/format.h>

#include "starling/base/closest.h"
#include "starling/base/error.h"

namespace starling {
namespace {

const char* to_string(ModelInput input) {
  return input == ModelInput::images ? "images" : "text";
}

}  // namespace

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {lenet_family(), mlp_family(), resnet20_family(),
                                                    vgg11_family(), transformer_family()};
  return families;
}

const ModelFamily& find_model(const Spec& spec, ModelInput input) {
  const ModelFamily* named = nullptr;
  std::vector<std::string> names, fitting;
  for (const ModelFamily& family : model_families()) {
    if (family.name == spec.word && !spec.is_list) named = &family;
    names.push_back(family.name);
    if (family.input == input) fitting.push_back(family.name);
  }
  if (named == nullptr) throw InvalidArgument(unknown_name("model", spec.to_string(), names));
  if (named->input != input)
    throw InvalidArgument(fmt::format("{} learns {}, and this data is {}; valid are {}", named->name,
                                      to_string(named->input), to_string(input), join_words(fitting)));
  return *named;
}

ModelPtr make_model(std::string_view text, const ModelSetting& setting) {
  const Spec spec = parse_spec(text);
  const ModelFamily& family = find_model(spec, setting.input);
  return family.make(Parameters(spec, family.parameters), setting);
}

}  // namespace starling

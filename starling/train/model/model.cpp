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

ModelPtr make_model(std::string_view text, const ModelSetting& setting) {
  const Spec spec = parse_spec(text);
  const ModelFamily* named = nullptr;
  std::vector<std::string> names, fitting;
  for (const ModelFamily& family : model_families()) {
    if (family.name == spec.word && !spec.is_list) named = &family;
    names.push_back(family.name);
    if (family.input == setting.input) fitting.push_back(family.name);
  }
  if (named == nullptr) throw InvalidArgument(unknown_name("model", spec.to_string(), names));
  if (named->input != setting.input)
    throw InvalidArgument(fmt::format("{} learns {}, and this data is {}; valid are {}", named->name,
                                      to_string(named->input), to_string(setting.input),
                                      join_words(fitting)));
  return named->make(Parameters(spec, named->parameters), setting);
}

}  // namespace starling

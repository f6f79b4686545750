#include "starling/train/model/model.h"

#include "starling/base/closest.h"
#include "starling/base/error.h"

namespace starling {

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {lenet_family(), mlp_family(), resnet20_family()};
  return families;
}

ModelPtr make_model(std::string_view text, const ModelSetting& setting) {
  const Spec spec = parse_spec(text);
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) {
    if (family.name == spec.word && !spec.is_list)
      return family.make(Parameters(spec, family.parameters), setting);
    names.push_back(family.name);
  }
  throw InvalidArgument(unknown_name("model", spec.to_string(), names));
}

}  // namespace starling

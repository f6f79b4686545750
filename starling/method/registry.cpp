#include "starling/method/registry.h"

#include "starling/base/registry.h"
#include "starling/codec/registry.h"
#include "starling/method/family/list.h"

namespace starling::method {
namespace {

Registry<MethodFamily>& all_methods() {
  static Registry<MethodFamily> instance(
      "method",
      {
#define STARLING_METHOD(name) family::name(),
#include "starling/method/family/list.inc"
#undef STARLING_METHOD
      },
      [](ParameterKind, const Spec& codec) { return parse_spec(canonical_codec(codec.to_string())); });
  return instance;
}

}  // namespace

MethodPtr make_method(std::string_view text) {
  const Spec spec = parse_spec(text);
  const MethodFamily& family = all_methods().find(spec);
  MethodPtr made = family.make(Parameters(spec, family.parameters));
  made->spec = spec.to_string();
  made->canonical = all_methods().canonical(spec).to_string();
  return made;
}

std::string canonical_method(std::string_view text) {
  return all_methods().canonical(parse_spec(text)).to_string();
}

const MethodFamily& find_method(const Spec& spec) {
  return all_methods().find(spec);
}

std::vector<MethodFamily> method_families() {
  return all_methods().entries();
}

void register_method(MethodFamily family) {
  all_methods().add(std::move(family));
}

}  // namespace starling::method

#include "starling/method/registry.h"

#include <fmt/format.h>
#include <mutex>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/method/family/list.h"

namespace starling {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<MethodFamily> families = {
#define STARLING_METHOD(name) methods::name(),
#include "starling/method/family/list.inc"
#undef STARLING_METHOD
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

MethodPtr make_method(std::string_view text) {
  const Spec spec = parse_spec(text);
  if (spec.is_list)
    throw InvalidArgument(fmt::format("expected a method's name, not the list {}", spec.to_string()));
  std::vector<std::string> names;
  for (const MethodFamily& family : method_families()) {
    if (family.name == spec.word) {
      MethodPtr made = family.make(Parameters(spec, family.parameters));
      made->spec = spec.to_string();
      return made;
    }
    names.push_back(family.name);
  }
  throw InvalidArgument(unknown_name("method", spec.word, names));
}

std::vector<MethodFamily> method_families() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.families;
}

void register_method(MethodFamily family) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const MethodFamily& existing : all.families)
    if (existing.name == family.name)
      throw InvalidArgument(fmt::format("a method named '{}' exists already", family.name));
  all.families.push_back(std::move(family));
}

}  // namespace starling

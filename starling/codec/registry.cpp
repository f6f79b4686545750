#include "starling/codec/registry.h"

#include <fmt/format.h>
#include <mutex>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/codec/family/list.h"

namespace starling {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<CodecFamily> families = {
#define STARLING_CODEC(name) codecs::name(),
#include "starling/codec/family/list.inc"
#undef STARLING_CODEC
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

CodecPtr make_codec(std::string_view text) {
  const Spec spec = parse_spec(text);
  if (spec.is_list)
    throw InvalidArgument(fmt::format("expected a codec's name, not the list {}", spec.to_string()));
  std::vector<std::string> names;
  for (const CodecFamily& family : codec_families()) {
    if (family.name == spec.word) {
      std::shared_ptr<Codec> made = family.make(Parameters(spec, family.parameters));
      made->spec = spec.to_string();
      return made;
    }
    names.push_back(family.name);
  }
  throw InvalidArgument(unknown_name("codec", spec.word, names));
}

std::vector<CodecFamily> codec_families() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.families;
}

void register_codec(CodecFamily family) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const CodecFamily& existing : all.families)
    if (existing.name == family.name)
      throw InvalidArgument(fmt::format("a codec named '{}' exists already", family.name));
  all.families.push_back(std::move(family));
}

}  // namespace starling

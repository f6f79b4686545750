#include "starling/codec/registry.h"

#include "starling/base/registry.h"
#include "starling/codec/family/list.h"

namespace starling::codec {
namespace {

Registry<CodecFamily>& all_codecs() {
  static Registry<CodecFamily> instance("codec", {
#define STARLING_CODEC(name) family::name(),
#include "starling/codec/family/list.inc"
#undef STARLING_CODEC
                                                 });
  return instance;
}

}  // namespace

CodecPtr make_codec(std::string_view text) {
  const Spec spec = parse_spec(text);
  const CodecFamily& family = all_codecs().find(spec);
  std::shared_ptr<Codec> made = family.make(Parameters(spec, family.parameters));
  made->spec = spec.to_string();
  made->canonical = all_codecs().canonical(spec).to_string();
  return made;
}

std::string canonical_codec(std::string_view text) {
  return all_codecs().canonical(parse_spec(text)).to_string();
}

const CodecFamily& find_codec(const Spec& spec) {
  return all_codecs().find(spec);
}

std::vector<CodecFamily> codec_families() {
  return all_codecs().entries();
}

void register_codec(CodecFamily family) {
  all_codecs().add(std::move(family));
}

}  // namespace starling::codec

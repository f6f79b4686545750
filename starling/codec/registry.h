#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/codec/codec.h"

namespace starling::codec {

/// A named family of codecs: what the spec grammar needs, and the function that makes one.
struct CodecFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<std::shared_ptr<Codec>(const Parameters&)> make;
  std::vector<std::string> aliases = {};
};

/// Makes a codec, as in `make_codec("top-k(fraction=0.01)")`; throws InvalidArgument with what is valid.
CodecPtr make_codec(std::string_view text);

/// All families in the order of family/list.inc, then those that the program registered.
std::vector<CodecFamily> codec_families();
/// The family that a spec names; throws InvalidArgument with the closest name.
const CodecFamily& find_codec(const Spec& spec);

/// The canonical spelling, equal for all specs of the same codec: `top-k(fraction=0.01)` for `top-k`.
std::string canonical_codec(std::string_view text);

/// Registers a codec under a new name. Thread-safe.
void register_codec(CodecFamily family);

}  // namespace starling::codec

namespace starling {
using codec::codec_families;
using codec::CodecFamily;
using codec::make_codec;
using codec::register_codec;
}  // namespace starling

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/codec/codec.h"

namespace starling::codec {

/// A named family of codecs: what the grammar knows, and how to make one.
struct CodecFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<std::shared_ptr<Codec>(const Parameters&)> make;
  std::vector<std::string> aliases = {};
};

/// `make_codec("top-k(fraction=0.01)")`; throws InvalidArgument listing what is valid.
CodecPtr make_codec(std::string_view text);

/// All families, in the order of the documentation; a program's own come last.
std::vector<CodecFamily> codec_families();
/// The family that a spec names; throws InvalidArgument with what may have been meant.
const CodecFamily& find_codec(const Spec& spec);

/// The one spelling of all specs of codecs that mean the same: `top-k(fraction=0.01)` for `top-k`.
std::string canonical_codec(std::string_view text);

/// Adds a codec of the program's own under a new name. Thread-safe.
void register_codec(CodecFamily family);

}  // namespace starling::codec

namespace starling {
using codec::codec_families;
using codec::CodecFamily;
using codec::make_codec;
using codec::register_codec;
}  // namespace starling

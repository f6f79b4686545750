#include "starling/base/dtype.h"

#include <algorithm>
#include <array>

namespace starling {

namespace {

constexpr std::array<std::string_view, 9> kNames = {"float64", "float32", "float16", "bfloat16", "int64",
                                                    "int32",   "int16",   "int8",    "uint8"};

}  // namespace

std::string name(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kNames.size() ? std::string(kNames[index]) : "dtype " + std::to_string(index);
}

DType parse_dtype(std::string_view text) {
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end())
    throw InvalidArgument("unknown dtype '" + std::string(text) + "'; valid are " + join_words(kNames));
  return static_cast<DType>(found - kNames.begin());
}

void throw_unknown_dtype(DType dtype) {
  throw InvalidArgument("unknown " + name(dtype) + "; valid are " + join_words(kNames));
}

}  // namespace starling

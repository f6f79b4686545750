#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling::fabric::c10d_engine {

/// The values of torch's stores.
using StoreBytes = std::vector<std::uint8_t>;

inline StoreBytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}
inline std::string text_of(const StoreBytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace starling::fabric::c10d_engine

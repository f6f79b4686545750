#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace starling {

// Turns a text into a valid GoogleTest case name: letters and digits, with one underscore for anything
// between.
inline std::string test_name(std::string_view text) {
  std::string name;
  for (const char letter : text) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      name += letter;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

}  // namespace starling

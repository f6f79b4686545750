#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace starling {

// What GoogleTest lets a case be called: letters and digits, everything between them one underscore.
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

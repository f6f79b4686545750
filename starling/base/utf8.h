#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling {

/// One step through UTF-8 text: the code point at `position`, which moves on; U+FFFD for what is not UTF-8.
char32_t next_code_point(std::string_view text, std::size_t& position);

void append_utf8(std::string& text, char32_t code_point);

/// The number of code points: the columns a terminal needs for Latin, Greek and mathematical text.
std::size_t utf8_length(std::string_view text);

/// The first `length` code points, the last of them "…" if something had to go.
std::string utf8_shortened(std::string_view text, std::size_t length);

}  // namespace starling

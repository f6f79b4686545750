#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling {

/// Reads the code point at `position` of UTF-8 text and advances `position`; U+FFFD for invalid bytes.
char32_t next_code_point(std::string_view text, std::size_t& position);

void append_utf8(std::string& text, char32_t code_point);

/// The number of code points: the columns that a terminal needs for Latin, Greek and mathematical text.
std::size_t utf8_length(std::string_view text);

/// The first `length` code points; the last one is "…" if the text was cut.
std::string utf8_shortened(std::string_view text, std::size_t length);

}  // namespace starling

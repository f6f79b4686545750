#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// Splits `text` into lines of at most `width` columns; a longer word gets a line of its own.
std::vector<std::string> wrap_words(const std::string& text, std::size_t width);

}  // namespace starling

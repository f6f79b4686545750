#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The words of `text` in lines of at most `width` columns; a longer word has a line of its own.
std::vector<std::string> wrap_words(const std::string& text, std::size_t width);

}  // namespace starling

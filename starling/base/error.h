#pragma once

#include <stdexcept>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// Everything that Starling throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something that cannot be; the message says what would be valid.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// "a, b or c", for messages that list the valid values.
template <typename Range>
std::string join_words(const Range& words, const std::string& separator = ", ") {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : separator) + std::string(word);
  return text;
}

}  // namespace starling

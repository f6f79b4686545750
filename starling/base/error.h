#pragma once

#include <stdexcept>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// The base class of all exceptions that Starling throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something invalid; the message says what is valid.
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

#pragma once

#include <string>
#include <string_view>

#include "starling/base/floors.h"
#include "starling/base/name_hash.h"

namespace starling::flock {

/// The name of an operation. Operations with equal names are matched in the order in which they were started.
/// A view of the text: use it for arguments, do not store it.
class Name {
 public:
  constexpr Name(const char* text) : Name(std::string_view(text)) {}              // NOLINT: a word is a name
  constexpr Name(std::string_view text) : text_(text), hash_(hash_name(text)) {}  // NOLINT
  Name(const std::string& text) : Name(std::string_view(text)) {}                 // NOLINT

  constexpr std::string_view text() const { return text_; }
  constexpr std::uint64_t hash() const { return hash_; }

 private:
  std::string_view text_;
  std::uint64_t hash_;
};

}  // namespace starling::flock

namespace starling {
using flock::Name;
}  // namespace starling

#pragma once

#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// A host of a job and the number of ranks on it.
struct HostShare {
  std::string name;  // in the form of ssh: name or user@name
  Rank ranks = 1;
};

constexpr Rank kMostRanks = 10000;

/// Parses "a:2,b:2" or "a,[fe80::1]:4"; the default number is 1. Throws InvalidArgument that names the wrong
/// part.
std::vector<HostShare> parse_hosts(const std::string& text);

/// The host name without the user.
std::string bare_name(const std::string& host);

/// Splits like a shell: blanks, quotes and backslashes, nothing else. Throws InvalidArgument.
std::vector<std::string> split_words(const std::string& text);

}  // namespace starling::launch

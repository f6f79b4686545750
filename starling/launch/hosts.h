#pragma once

#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// A host of a job, and how many of its ranks run there.
struct HostShare {
  std::string name;  // as ssh takes it, so perhaps user@name
  Rank ranks = 1;
};

constexpr Rank kMostRanks = 10000;

/// "a:2,b:2" or "a,[fe80::1]:4"; a number left out is 1. Throws InvalidArgument that names the word.
std::vector<HostShare> parse_hosts(const std::string& text);

/// Without the user.
std::string bare_name(const std::string& host);

/// Words as a shell would part them: blanks, quotes and backslashes, nothing else. Throws InvalidArgument.
std::vector<std::string> split_words(const std::string& text);

}  // namespace starling::launch

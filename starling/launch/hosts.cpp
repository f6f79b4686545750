#include "starling/launch/hosts.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <string_view>

#include "starling/base/error.h"

namespace starling::launch {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";

Rank ranks_of(const std::string& word, std::string_view count) {
  Rank ranks = 0;
  const auto result = std::from_chars(count.data(), count.data() + count.size(), ranks);
  if (result.ec != std::errc() || result.ptr != count.data() + count.size() || ranks < 1 ||
      ranks > kMostRanks)
    throw InvalidArgument(
        fmt::format("--hosts: '{}' has '{}' after its colon; valid is a number of ranks from 1 to {}", word,
                    count, kMostRanks));
  return ranks;
}

// A name that contains colons is in brackets.
HostShare parse_host(const std::string& word, const std::string& all) {
  HostShare share;
  std::string_view rest = word;
  const std::size_t bracket = word.starts_with('[') ? word.find(']') : std::string::npos;
  if (bracket != std::string::npos) {
    share.name = word.substr(1, bracket - 1);
    rest.remove_prefix(bracket + 1);
  } else {
    const std::size_t colon = std::min(word.find(':'), word.size());
    share.name = word.substr(0, colon);
    rest.remove_prefix(colon);
    if (std::ranges::count(word, ':') > 1)
      throw InvalidArgument(
          fmt::format("--hosts: '{}' has several colons; an IPv6 address is written in brackets, as in "
                      "[fe80::1]:2",
                      word));
  }
  if (share.name.empty())
    throw InvalidArgument(
        fmt::format("--hosts: '{}' has a host without a name; valid is, for instance, a:2,b:2", all));
  if (share.name.starts_with('-') || share.name.find_first_of(kBlanks) != std::string::npos)
    throw InvalidArgument(fmt::format(
        "--hosts: '{}' is not a valid host name: it begins with a dash or contains blanks", share.name));
  if (rest.empty()) return share;
  if (!rest.starts_with(':'))
    throw InvalidArgument(fmt::format("--hosts: '{}' has unexpected text after its bracket; valid is [{}]:2",
                                      word, share.name));
  share.ranks = ranks_of(word, rest.substr(1));
  return share;
}

}  // namespace

std::vector<HostShare> parse_hosts(const std::string& text) {
  std::vector<HostShare> hosts;
  std::int64_t all = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    HostShare share = parse_host(text.substr(begin, end - begin), text);
    if (std::ranges::find(hosts, share.name, &HostShare::name) != hosts.end())
      throw InvalidArgument(
          fmt::format("--hosts: '{}' appears twice; give all ranks of a host at once, as in {}:4", share.name,
                      share.name));
    all += share.ranks;
    hosts.push_back(std::move(share));
    begin = end + 1;
  }
  if (all > kMostRanks)
    throw InvalidArgument(fmt::format("--hosts: {} ranks in total; the maximum is {}", all, kMostRanks));
  return hosts;
}

std::string bare_name(const std::string& host) {
  return host.substr(host.rfind('@') + 1);
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && kBlanks.find(c) != std::string_view::npos) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) throw InvalidArgument(fmt::format("'{}' ends in a backslash", text));
      // Between double quotes a backslash is literal, unless it escapes a quote or a backslash.
      if (quote == '"' && text[i] != '"' && text[i] != '\\') words.back() += c;
      words.back() += text[i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) throw InvalidArgument(fmt::format("'{}' has an unterminated quote {}", text, quote));
  return words;
}

}  // namespace starling::launch

#include "starling/train/description.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/checksum.h"

namespace starling::train {
namespace {

constexpr char kBetween = '\t';

// Users choose names, which may contain line breaks.
std::string one_line(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](char letter) { return static_cast<unsigned char>(letter) < ' '; }, ' ');
  return clean;
}

bool has_key(const std::vector<Description::Line>& lines, const std::string& key) {
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.first == key; });
}

}  // namespace

void Description::add(std::string_view key, std::string_view value) {
  lines_.emplace_back(one_line(key), one_line(value));
}

void Description::append(const Description& other) {
  lines_.insert(lines_.end(), other.lines_.begin(), other.lines_.end());
}

std::string Description::text() const {
  std::string all;
  for (const auto& [key, value] : lines_) {
    all += key;
    all += kBetween;
    all += value;
    all += '\n';
  }
  return all;
}

Description Description::parse(std::string_view text) {
  Description read;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t between = line.find(kBetween);
    if (between != std::string_view::npos) read.add(line.substr(0, between), line.substr(between + 1));
  }
  return read;
}

std::uint64_t Description::digest() const {
  const std::string all = text();
  return checksum_of(std::as_bytes(std::span(all)));
}

std::string Difference::text(std::int64_t first_rank, std::int64_t second_rank) const {
  return between(fmt::format("on rank {}", first_rank), fmt::format("on rank {}", second_rank));
}

std::string Difference::between(std::string_view first_where, std::string_view second_where) const {
  return fmt::format("{}: {} {}, {} {}", key, first, first_where, second, second_where);
}

std::optional<Difference> first_difference(const Description& first, const Description& second) {
  const auto& a = first.lines();
  const auto& b = second.lines();
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
    if (i < a.size() && i < b.size() && a[i].first == b[i].first)
      return Difference{a[i].first, a[i].second, b[i].second};
    // A line is missing on one side, or the order differs.
    if (i < a.size() && !has_key(b, a[i].first)) return Difference{a[i].first, a[i].second, "none"};
    if (i < b.size() && !has_key(a, b[i].first)) return Difference{b[i].first, "none", b[i].second};
    return Difference{fmt::format("number {} in the list of settings", i + 1),
                      i < a.size() ? a[i].first : "none", i < b.size() ? b[i].first : "none"};
  }
  return std::nullopt;
}

std::string describe_number(double number) {
  return fmt::format("{:.7g}", number);
}

}  // namespace starling::train

#include "starling/train/gathered.h"

#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <string_view>

namespace starling::train {
namespace {

constexpr char kNextRank = '\x01';  // separates texts, whose own letters are printable

}  // namespace

std::vector<RankDescription> gather_descriptions(Flock& flock, const Description& own, const Name& name) {
  const std::string text = fmt::format("{}{}\n{}", kNextRank, flock.rank(), own.text());
  const auto all = flock.allgather(std::vector<std::uint8_t>(text.begin(), text.end()), name);
  std::vector<RankDescription> descriptions;
  std::string_view rest(reinterpret_cast<const char*>(all.data()), all.size());
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(kNextRank, 1));
    rest.remove_prefix(one.size());
    const std::size_t line = one.find('\n');
    RankDescription& told = descriptions.emplace_back();
    std::from_chars(one.data() + 1, one.data() + line, told.rank);
    told.what = Description::parse(one.substr(line + 1));
  }
  return descriptions;
}

std::optional<std::string> difference_among(const std::vector<RankDescription>& descriptions) {
  const RankDescription* first = nullptr;
  for (const RankDescription& one : descriptions) {
    if (one.what.lines().empty()) continue;
    if (first == nullptr) first = &one;
    if (const auto difference = first_difference(first->what, one.what))
      return difference->text(first->rank, one.rank);
  }
  return std::nullopt;
}

}  // namespace starling::train

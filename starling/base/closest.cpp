#include "starling/base/closest.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"

namespace starling {
namespace {

// The number of letters to change, add, drop or swap with the next one (Damerau-Levenshtein, each letter at
// most once).
std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> last, row(right.size() + 1), next(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t change = row[j] + (left[i] == right[j] ? 0 : 1);
      next[j + 1] = std::min({change, next[j] + 1, row[j + 1] + 1});
      if (i > 0 && j > 0 && left[i] == right[j - 1] && left[i - 1] == right[j])
        next[j + 1] = std::min(next[j + 1], last[j - 1] + 1);
    }
    last = row;
    std::swap(row, next);
  }
  return row.back();
}

}  // namespace

std::string closest_name(const std::string& name, const std::vector<std::string>& valid) {
  const auto closest =
      std::min_element(valid.begin(), valid.end(), [&](const std::string& left, const std::string& right) {
        return edit_distance(left, name) < edit_distance(right, name);
      });
  if (closest == valid.end()) return "";
  const std::size_t distance = edit_distance(*closest, name);
  // A name of at least two letters may have one wrong letter (`kk` for `k`), one of five or more two.
  const bool close = distance <= 1 ? name.size() >= 2 : distance == 2 && name.size() >= 5;
  return close ? *closest : "";
}

std::string closest_name_hint(const std::string& name, const std::vector<std::string>& valid) {
  constexpr std::ptrdiff_t kMostLonger = 3;
  const auto is_longer = [&](const std::string& one) { return !name.empty() && one.starts_with(name + "-"); };
  const auto longer = std::count_if(valid.begin(), valid.end(), is_longer);
  std::string close;
  if (longer >= 1 && longer <= kMostLonger) {
    for (const std::string& one : valid)
      if (is_longer(one)) close += (close.empty() ? "" : " or ") + one;
  } else {
    close = closest_name(name, valid);
  }
  return close.empty() ? "" : fmt::format(" (did you mean {}?)", close);
}

std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid, const std::vector<std::string>& aliases) {
  std::vector<std::string> known = valid;
  known.insert(known.end(), aliases.begin(), aliases.end());
  return fmt::format("unknown {} '{}'{}; valid are {}", what, name, closest_name_hint(name, known),
                     join_words(valid));
}

}  // namespace starling

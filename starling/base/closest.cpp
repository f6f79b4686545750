#include "starling/base/closest.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"

namespace starling {
namespace {

// Letters to change, add or drop (Levenshtein).
std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t change = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid) {
  const auto closest =
      std::min_element(valid.begin(), valid.end(), [&](const std::string& left, const std::string& right) {
        return edit_distance(left, name) < edit_distance(right, name);
      });
  const bool close = closest != valid.end() && edit_distance(*closest, name) <= 2;
  return fmt::format("unknown {} '{}'{}; valid are {}", what, name,
                     close ? fmt::format(" (did you mean {}?)", *closest) : "", join_words(valid));
}

}  // namespace starling

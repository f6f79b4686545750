#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/base/floors.h"

namespace starling::train {

/// An ordered list of keys and values that describes what a rank trains, and how. Ranks compare digests and,
/// only if these differ, the lists.
class Description {
 public:
  using Line = std::pair<std::string, std::string>;

  void add(std::string_view key, std::string_view value);
  /// Adds the lines of another description.
  void append(const Description& other);
  const std::vector<Line>& lines() const { return lines_; }

  /// One line of text per key, and the inverse.
  std::string text() const;
  static Description parse(std::string_view text);
  std::uint64_t digest() const;

 private:
  std::vector<Line> lines_;
};

/// The first key whose values differ; "none" is the value of a key that is missing.
struct Difference {
  std::string key;
  std::string first;
  std::string second;

  /// "lr: 0.1 on rank 0, 0.05 on rank 2".
  std::string text(std::int64_t first_rank, std::int64_t second_rank) const;
  /// "lr: 0.1 in the checkpoint, 0.05 here".
  std::string between(std::string_view first_where, std::string_view second_where) const;
};
std::optional<Difference> first_difference(const Description& first, const Description& second);

/// A number with seven digits, so that differences in the last bits of a learning rate, computed on other
/// hardware, do not count.
std::string describe_number(double number);

}  // namespace starling::train

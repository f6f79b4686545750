#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling {

/// What a rank trains, and how, as an ordered list of keys and values. Ranks compare the digests of theirs
/// and, only where these differ, the lists.
class Description {
 public:
  using Line = std::pair<std::string, std::string>;

  void add(std::string_view key, std::string_view value);
  /// The lines of another one behind these.
  void append(const Description& other);
  const std::vector<Line>& lines() const { return lines_; }

  /// One line of text per key; and back.
  std::string text() const;
  static Description parse(std::string_view text);
  std::uint64_t digest() const;

 private:
  std::vector<Line> lines_;
};

/// The first key whose value is not the same on two ranks; "none" where one of them does not have it.
struct Difference {
  std::string key;
  std::string first;
  std::string second;

  /// "lr: 0.1 on rank 0, 0.05 on rank 2".
  std::string text(std::int64_t first_rank, std::int64_t second_rank) const;
};
std::optional<Difference> first_difference(const Description& first, const Description& second);

/// A number as descriptions have it: seven digits, so that the last bits of a learning rate that was computed
/// on other hardware do not count.
std::string describe_number(double number);

}  // namespace starling

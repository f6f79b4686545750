#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// Writes JSON as it goes, without building a document: commas, indents and escapes are its business.
///
///     JsonWriter json(std::cout);
///     json.begin_object().member("n", 16).key("rho").value(0.5).end_object();
///
/// Throws Error when the calls do not make a document (a value without its key, an end without a begin).
class JsonWriter {
 public:
  enum class Layout { lines, one_line, compact };  // compact: one line without spaces

  /// `digits` significant digits; 17 bring every double back as it was, and so do the fewest that can (0).
  explicit JsonWriter(std::ostream& out, Layout layout = Layout::lines, int digits = 17)
      : out_(out), layout_(layout), digits_(digits) {}

  JsonWriter& begin_object(Layout layout = Layout::lines) { return begin('{', layout); }
  JsonWriter& end_object() { return end('}'); }
  /// A value that is JSON already.
  JsonWriter& literal(std::string_view json) { return raw(json); }
  /// `Layout::one_line` for an array of numbers that should not take a line each.
  JsonWriter& begin_array(Layout layout = Layout::lines) { return begin('[', layout); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool yes) { return raw(yes ? "true" : "false"); }
  /// A number that is not finite has no JSON: null.
  JsonWriter& value(double number);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::is_signed_v<T>) {
      return integer(static_cast<std::int64_t>(number));
    } else {
      return integer(static_cast<std::uint64_t>(number));
    }
  }
  JsonWriter& null() { return raw("null"); }

  /// An array on one line.
  template <std::ranges::input_range Range>
  requires(!std::convertible_to<const Range&, std::string_view>) JsonWriter& value(const Range& items) {
    begin_array(Layout::one_line);
    for (const auto& item : items) value(item);
    return end_array();
  }

  template <typename T>
  JsonWriter& member(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  /// One whole document has been written.
  bool complete() const { return levels_.empty() && started_; }

 private:
  struct Level {
    char close;
    bool one_line;
    bool empty = true;
  };

  JsonWriter& begin(char open, Layout layout);
  JsonWriter& end(char close);
  JsonWriter& raw(std::string_view token);
  JsonWriter& integer(std::int64_t number);
  JsonWriter& integer(std::uint64_t number);
  void before_value();
  void separate();
  void new_line();

  std::ostream& out_;
  Layout layout_;
  int digits_;
  std::vector<Level> levels_;
  bool after_key_ = false;
  bool started_ = false;
};

/// `text` between quotes, escaped; broken UTF-8 becomes U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace starling

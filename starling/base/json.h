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

/// Streams JSON without building a document; handles commas, indentation and escapes.
///
///   JsonWriter json(std::cout);
///   json.begin_object().member("n", 16).key("rho").value(0.5).end_object();
///
/// Throws Error if the calls do not form a document (a value without a key, an end without a begin).
class JsonWriter {
 public:
  enum class Layout { lines, one_line, compact };  // compact: one line without spaces

  /// `digits`: significant digits of doubles. 17 digits restore every double exactly; 0 writes the fewest
  /// digits that do.
  explicit JsonWriter(std::ostream& out, Layout layout = Layout::lines, int digits = 17)
      : out_(out), layout_(layout), digits_(digits) {}

  JsonWriter& begin_object(Layout layout = Layout::lines) { return begin('{', layout); }
  JsonWriter& end_object() { return end('}'); }
  /// Writes text that is already JSON.
  JsonWriter& literal(std::string_view json) { return raw(json); }
  /// `Layout::one_line` keeps an array of numbers on one line.
  JsonWriter& begin_array(Layout layout = Layout::lines) { return begin('[', layout); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool yes) { return raw(yes ? "true" : "false"); }
  /// Writes null for a number that is not finite.
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

  /// Writes an array on one line.
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

  /// Whether one complete document has been written.
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

#include "starling/base/json.h"

#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/utf8.h"

namespace starling {

JsonWriter& JsonWriter::key(std::string_view name) {
  if (levels_.empty() || levels_.back().close != '}' || after_key_)
    throw Error(fmt::format("JsonWriter: the key {} has no place here", json_quoted(name)));
  separate();
  out_ << json_quoted(name) << (layout_ == Layout::compact ? ":" : ": ");
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  return raw(json_quoted(text));
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  return raw(digits_ == 0 ? fmt::format("{}", number) : fmt::format("{:.{}g}", number, digits_));
}

JsonWriter& JsonWriter::integer(std::int64_t number) {
  return raw(fmt::format("{}", number));
}
JsonWriter& JsonWriter::integer(std::uint64_t number) {
  return raw(fmt::format("{}", number));
}

JsonWriter& JsonWriter::begin(char open, Layout layout) {
  before_value();
  const bool inside_line = !levels_.empty() && levels_.back().one_line;
  const bool one_line = inside_line || layout == Layout::one_line || layout_ != Layout::lines;
  levels_.push_back({open == '{' ? '}' : ']', one_line});
  out_ << open;
  return *this;
}

JsonWriter& JsonWriter::end(char close) {
  if (levels_.empty() || levels_.back().close != close || after_key_)
    throw Error(fmt::format("JsonWriter: '{}' closes nothing here", close));
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.one_line) new_line();
  out_ << close;
  if (levels_.empty() && layout_ == Layout::lines) out_ << '\n';
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  before_value();
  out_ << token;
  return *this;
}

void JsonWriter::before_value() {
  if (levels_.empty() && started_) throw Error("JsonWriter: the document is complete already");
  started_ = true;
  if (!levels_.empty() && levels_.back().close == '}') {
    if (!after_key_) throw Error("JsonWriter: a value inside an object needs a key first");
    after_key_ = false;
  } else if (!levels_.empty()) {
    separate();
  }
}

void JsonWriter::separate() {
  Level& level = levels_.back();
  if (!level.empty) out_ << (level.one_line && layout_ != Layout::compact ? ", " : ",");
  if (!level.one_line) new_line();
  level.empty = false;
}

void JsonWriter::new_line() {
  out_ << '\n' << std::string(2 * levels_.size(), ' ');
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        // U+2028 and U+2029 are legal in JSON strings but not in old JavaScript.
        if (c < 0x20 || c == 0x7F || c == 0x2028 || c == 0x2029) {
          quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          append_utf8(quoted, c);
        }
    }
  }
  return quoted + '"';
}

}  // namespace starling

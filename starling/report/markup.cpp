#include "starling/report/markup.h"

#include <cctype>

#include "starling/base/utf8.h"

namespace starling::report {
namespace {

bool allowed_in_xml(char32_t c) {
  const bool control = (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0x7F && c < 0xA0);
  return !control && c != 0xFFFE && c != 0xFFFF;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        append_utf8(escaped, allowed_in_xml(c) ? c : 0xFFFD);
    }
  }
  return escaped;
}

std::string escape_script(std::string_view script) {
  // Both can only occur in a string or a regular expression, where the backslash changes nothing.
  const auto starts = [&](std::size_t at, std::string_view word) {
    if (script.size() - at < word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i)
      if (std::tolower(static_cast<unsigned char>(script[at + i])) != word[i]) return false;
    return true;
  };
  std::string escaped;
  escaped.reserve(script.size());
  for (std::size_t i = 0; i < script.size(); ++i) {
    escaped += script[i];
    if (starts(i, "</script") || starts(i, "<!--")) escaped += '\\';
  }
  return escaped;
}

std::string escape_script_json(std::string_view json) {
  std::string escaped;
  escaped.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      escaped += "\\u003c";  // in JSON a '<' is always inside a string
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace starling::report

#include "starling/base/utf8.h"

#include <algorithm>

namespace starling {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Lead {
  int continuations;
  char32_t bits;
  char32_t least;  // smaller values would be overlong
};

Lead decode_lead(unsigned char byte) {
  if (byte < 0x80) return {0, byte, 0};
  if (byte >= 0xC0 && byte < 0xE0) return {1, byte & 0x1FU, 0x80};
  if (byte >= 0xE0 && byte < 0xF0) return {2, byte & 0x0FU, 0x800};
  if (byte >= 0xF0 && byte < 0xF8) return {3, byte & 0x07U, 0x10000};
  return {-1, 0, 0};
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const Lead lead = decode_lead(static_cast<unsigned char>(text[position++]));
  if (lead.continuations < 0) return kReplacement;
  char32_t value = lead.bits;
  std::size_t next = position;
  for (int i = 0; i < lead.continuations; ++i, ++next) {
    if (next >= text.size() || (static_cast<unsigned char>(text[next]) & 0xC0) != 0x80) return kReplacement;
    value = (value << 6) | (static_cast<unsigned char>(text[next]) & 0x3FU);
  }
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < lead.least || value > 0x10FFFF || surrogate) return kReplacement;
  position = next;
  return value;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::size_t utf8_length(std::string_view text) {
  std::size_t length = 0;
  for (std::size_t position = 0; position < text.size(); ++length) next_code_point(text, position);
  return length;
}

std::string utf8_shortened(std::string_view text, std::size_t length) {
  if (utf8_length(text) <= length) return std::string(text);
  std::size_t position = 0;
  for (std::size_t i = 0; i + 1 < length; ++i) next_code_point(text, position);
  return std::string(text.substr(0, position)) + "…";
}

}  // namespace starling

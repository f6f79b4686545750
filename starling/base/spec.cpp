#include "starling/base/spec.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {
namespace {

constexpr int kMaximumDepth = 32;

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-_.+/:~%@").find(c) != std::string_view::npos;
}

// Escapes control characters, which would break up a one-line message.
std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      shown += c;
    }
  }
  return shown;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Spec parse() {
    Spec spec = parse_value(0);
    peek();
    if (at_ < text_.size()) fail("expected the end");
    return spec;
  }

 private:
  Spec parse_value(int depth) {
    if (depth > kMaximumDepth) fail(fmt::format("nested deeper than {}", kMaximumDepth));
    Spec spec;
    if (accept('[')) {
      spec.is_list = true;
      parse_items(']', depth, spec.arguments, /*with_keys=*/false);
      return spec;
    }
    spec.word = parse_word();
    if (accept('(')) parse_items(')', depth, spec.arguments, /*with_keys=*/true);
    return spec;
  }

  void parse_items(char close, int depth, std::vector<Spec::Argument>& items, bool with_keys) {
    if (accept(close)) return;
    do {
      Spec::Argument item;
      item.value = parse_value(depth + 1);
      if (with_keys && accept('=')) {
        if (item.value.is_list || !item.value.arguments.empty() || item.value.word.empty())
          fail("expected a plain name before '='");
        item.key = std::move(item.value.word);
        item.value = parse_value(depth + 1);
      }
      items.push_back(std::move(item));
    } while (accept(','));
    if (!accept(close)) fail(fmt::format("expected ',' or '{}'", close));
  }

  std::string parse_word() {
    if (accept('"')) {
      std::string word;
      while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
        word += text_[at_++];
      }
      if (at_ == text_.size()) fail("expected a closing '\"'");
      ++at_;
      return word;
    }
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word_character(text_[at_])) ++at_;
    if (at_ == start) fail("expected a name or a value");
    return std::string(text_.substr(start, at_ - start));
  }

  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void fail(const std::string& expectation) const {
    std::size_t end = at_ + 1;  // the end of one character, which may take several bytes in UTF-8
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) ++end;
    const std::string seen =
        at_ < text_.size() ? fmt::format("'{}'", printable(text_.substr(at_, end - at_))) : "the end";
    throw InvalidArgument(fmt::format("cannot read \"{}\": {} at position {}, found {}", printable(text_),
                                      expectation, at_ + 1, seen));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string quote(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_word_character)) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string Spec::to_string() const {
  std::string text = is_list ? "[" : quote(word);
  if (!is_list && arguments.empty()) return text;
  if (!is_list) text += '(';
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) text += ',';
    if (!arguments[i].key.empty()) text += quote(arguments[i].key) + '=';
    text += arguments[i].value.to_string();
  }
  return text + (is_list ? ']' : ')');
}

bool operator==(const Spec& left, const Spec& right) {
  return left.word == right.word && left.is_list == right.is_list && left.arguments == right.arguments;
}

bool operator==(const Spec::Argument& left, const Spec::Argument& right) {
  return left.key == right.key && left.value == right.value;
}

Spec parse_spec(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace starling

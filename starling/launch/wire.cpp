#include "starling/launch/wire.h"

#include <cerrno>
#include <charconv>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/version.h"

namespace starling::launch {
namespace {

constexpr std::string_view kHello = "starling " STARLING_VERSION;
constexpr std::string_view kKinds = "uoOeEnx";

// Takes a number from the front; false where there is none.
template <typename Number>
bool take_number(std::string_view& text, Number& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return true;
}

std::string read_word(int input) {
  constexpr std::size_t kLongest = 1 << 24;
  std::string word;
  while (word.size() < kLongest) {
    char letter = 0;
    const ssize_t got = read(input, &letter, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error("whoever started this launcher is gone");
    if (letter == '\0') return word;
    word += letter;
  }
  throw Error("what comes in is not from starling run --hosts");
}

template <typename Number>
Number read_number(int input) {
  const std::string word = read_word(input);
  std::string_view rest = word;
  Number value{};
  if (!take_number(rest, value) || !rest.empty())
    throw Error(fmt::format("'{}' is no number that starling run --hosts would send", word));
  return value;
}

std::vector<std::string> read_words(int input) {
  std::vector<std::string> words;
  for (auto left = read_number<std::uint32_t>(input); left > 0; --left) words.push_back(read_word(input));
  return words;
}

}  // namespace

std::string encode(const Greeting& greeting) {
  std::string text;
  const auto add = [&](std::string_view word) { text.append(word).push_back('\0'); };
  const auto add_all = [&](const std::vector<std::string>& words) {
    add(std::to_string(words.size()));
    for (const std::string& word : words) add(word);
  };
  add(kHello);
  add(greeting.token);
  for (const Rank number : {greeting.first, greeting.ranks, greeting.size}) add(std::to_string(number));
  add(greeting.bind ? "1" : "0");
  add_all(greeting.environment);
  add_all(greeting.command);
  return text;
}

Greeting read_greeting(int input) {
  if (const std::string hello = read_word(input); hello != kHello)
    throw Error(hello.starts_with("starling ")
                    ? fmt::format("this host has {}, but the job was started by {}", kHello, hello)
                    : "this command is for starling run --hosts");
  Greeting greeting;
  greeting.token = read_word(input);
  greeting.first = read_number<Rank>(input);
  greeting.ranks = read_number<Rank>(input);
  greeting.size = read_number<Rank>(input);
  greeting.bind = read_number<int>(input) != 0;
  greeting.environment = read_words(input);
  greeting.command = read_words(input);
  return greeting;
}

std::string encode(const Order& order) {
  return fmt::format("{} {}\n", order.signal, order.whole_group ? 1 : 0);
}

std::optional<Order> parse_order(std::string_view line) {
  Order order;
  int group = 0;
  if (!take_number(line, order.signal) || !line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  if (!take_number(line, group) || !line.empty()) return std::nullopt;
  order.whole_group = group != 0;
  return order;
}

std::string record_head(RecordKind kind, Rank rank) {
  return fmt::format("@{} {} ", static_cast<char>(kind), rank);
}

std::optional<Record> parse_record(std::string_view line) {
  if (line.size() < 4 || line[0] != '@' || kKinds.find(line[1]) == std::string_view::npos || line[2] != ' ')
    return std::nullopt;
  Record record{static_cast<RecordKind>(line[1]), 0, line.substr(3)};
  if (!take_number(record.text, record.rank) || !record.text.starts_with(' ')) return std::nullopt;
  record.text.remove_prefix(1);
  return record;
}

}  // namespace starling::launch

#include "starling/launch/host_protocol.h"

#include <cerrno>
#include <charconv>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/hosts.h"
#include "starling/version.h"

namespace starling::launch {
namespace {

constexpr std::string_view kHello = "starling " STARLING_VERSION;
constexpr std::string_view kKinds = "uoOeEnx";

// Removes a number from the front; false if there is none.
template <typename Number>
bool take_number(std::string_view& text, Number& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return true;
}

// Reads the words of one start message and nothing beyond it, within a limit on their size.
class StartMessageReader {
 public:
  explicit StartMessageReader(int input) : input_(input) {}

  std::string word() {
    std::string word;
    spend(sizeof(std::string));
    while (true) {
      char letter = 0;
      const ssize_t got = read(input_, &letter, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw Error("the parent launcher exited");
      if (letter == '\0') return word;
      spend(1);
      word += letter;
    }
  }

  template <typename Number>
  Number number() {
    const std::string text = word();
    std::string_view rest = text;
    Number value{};
    if (!take_number(rest, value) || !rest.empty())
      throw Error(fmt::format("'{}' is not a number, as starling run --hosts sends it", text.substr(0, 40)));
    return value;
  }

  std::vector<std::string> words() {
    std::vector<std::string> words;
    for (auto left = number<std::uint32_t>(); left > 0; --left) words.push_back(word());
    return words;
  }

 private:
  void spend(std::size_t bytes) {
    if (left_ < bytes) throw Error("the start message is longer than starling run --hosts sends");
    left_ -= bytes;
  }

  int input_;
  std::size_t left_ = kLongestStartMessage;
};

}  // namespace

std::string encode(const StartMessage& message) {
  std::string text;
  const auto add = [&](std::string_view word) { text.append(word).push_back('\0'); };
  const auto add_all = [&](const std::vector<std::string>& words) {
    add(std::to_string(words.size()));
    for (const std::string& word : words) add(word);
  };
  add(kHello);
  add(message.token);
  for (const Rank number : {message.first, message.ranks, message.size}) add(std::to_string(number));
  add(message.bind ? "1" : "0");
  add_all(message.environment);
  add_all(message.command);
  return text;
}

StartMessage read_start_message(int input) {
  StartMessageReader reader(input);
  if (const std::string hello = reader.word(); hello != kHello)
    throw Error(
        hello.starts_with("starling ")
            ? fmt::format("this host has {}, but the job was started by {}", kHello, hello.substr(0, 40))
            : "this command is only for starling run --hosts");
  StartMessage message;
  message.token = reader.word();
  message.first = reader.number<Rank>();
  message.ranks = reader.number<Rank>();
  message.size = reader.number<Rank>();
  const auto within = [&](Rank number, Rank least, Rank most) { return least <= number && number <= most; };
  if (!within(message.size, 1, kMostRanks) || !within(message.ranks, 1, message.size) ||
      !within(message.first, 0, message.size - message.ranks))
    throw Error(
        fmt::format("{} ranks from rank {} on, in a job of {}: starling run --hosts sends no such "
                    "request",
                    message.ranks, message.first, message.size));
  message.bind = reader.number<int>() != 0;
  message.environment = reader.words();
  message.command = reader.words();
  return message;
}

std::string encode(const SignalRequest& request) {
  return fmt::format("{} {}\n", request.signal, request.whole_group ? 1 : 0);
}

std::optional<SignalRequest> parse_signal_request(std::string_view line) {
  SignalRequest request;
  int group = 0;
  if (!take_number(line, request.signal) || !line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  if (!take_number(line, group) || !line.empty()) return std::nullopt;
  request.whole_group = group != 0;
  return request;
}

std::string record_head(HostRecordKind kind, Rank rank) {
  return fmt::format("@{} {} ", static_cast<char>(kind), rank);
}

std::optional<HostRecord> parse_record(std::string_view line) {
  if (line.size() < 4 || line[0] != '@' || kKinds.find(line[1]) == std::string_view::npos || line[2] != ' ')
    return std::nullopt;
  HostRecord record{static_cast<HostRecordKind>(line[1]), 0, line.substr(3)};
  if (!take_number(record.text, record.rank) || !record.text.starts_with(' ')) return std::nullopt;
  record.text.remove_prefix(1);
  return record;
}

}  // namespace starling::launch

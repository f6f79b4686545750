#include "tool/time_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <functional>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "tool/settings.h"

namespace starling::tool {
namespace {

constexpr double kSecondsPerByteAtGbit = 8e-9;

// One entry of the file, with accessors that check its value.
class Value {
 public:
  Value(const TomlEntry& entry, std::string where, Rank nodes)
      : entry_(entry), where_(std::move(where)), nodes_(nodes) {}

  bool is_list() const { return entry_.list; }

  double number(double least) const {
    one();
    return number(entry_.values[0], least);
  }

  double positive() const {
    const double value = number(0);
    if (value == 0) refuse(entry_.values[0], "a number above 0");
    return value;
  }

  double share() const {
    const double value = number(0);
    if (value > 1) refuse(entry_.values[0], "a share from 0 to 1");
    return value;
  }

  std::int64_t whole(std::int64_t least, std::int64_t most) const {
    one();
    return whole(entry_.values[0], least, most);
  }

  std::vector<double> numbers(double least) const {
    std::vector<double> list;
    for (const TomlScalar& value : entry_.values) list.push_back(number(value, least));
    if (list.size() != static_cast<std::size_t>(nodes_))
      throw Error(fmt::format("{}: {} has {} numbers; valid is one, or a list of {}, one per node", where_,
                              entry_.key, list.size(), nodes_));
    return list;
  }

  std::vector<Rank> ranks() const {
    std::vector<Rank> list;
    for (const TomlScalar& value : entry_.values)
      list.push_back(static_cast<Rank>(whole(value, 0, nodes_ - 1)));
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  // The number in the key itself, as in `compute_of.3`.
  Rank rank_in_key(std::size_t number) const {
    if (number >= static_cast<std::size_t>(nodes_))
      throw Error(fmt::format("{}: {}: nodes are numbered from 0 to {}", where_, entry_.key, nodes_ - 1));
    return static_cast<Rank>(number);
  }

 private:
  void one() const {
    if (entry_.list) throw Error(fmt::format("{}: {} takes one value, not a list", where_, entry_.key));
  }

  double number(const TomlScalar& value, double least) const {
    double read = std::nan("");
    if (const auto* real = std::get_if<double>(&value)) read = *real;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) read = static_cast<double>(*integer);
    if (!std::isfinite(read) || read < least) refuse(value, fmt::format("a number from {} up", least));
    return read;
  }

  std::int64_t whole(const TomlScalar& value, std::int64_t least, std::int64_t most) const {
    const auto* integer = std::get_if<std::int64_t>(&value);
    if (integer == nullptr || *integer < least || *integer > most)
      refuse(value, fmt::format("a whole number from {} to {}", least, most));
    return *integer;
  }

  [[noreturn]] void refuse(const TomlScalar& value, const std::string& wanted) const {
    throw Error(fmt::format("{}: {} = {} is not {}", where_, entry_.key, to_text(value), wanted));
  }

  const TomlEntry& entry_;
  std::string where_;
  Rank nodes_;
};

// Valid keys, with # for the number of a list's item, or a rank.
struct Key {
  const char* name;
  void (*set)(TimeModel& model, std::size_t number, const Value& value);
};

LinkRule& rule(TimeModel& model, std::size_t number) {
  while (model.rules.size() <= number) model.rules.push_back({{}, {}, model.link});
  return model.rules[number];
}

Straggler& straggler(TimeModel& model, std::size_t number) {
  if (model.stragglers.size() <= number) model.stragglers.resize(number + 1);
  return model.stragglers[number];
}

double seconds_per_byte(const Value& gbit) {
  return kSecondsPerByteAtGbit / gbit.positive();
}

constexpr std::int64_t kMost = std::int64_t{1} << 40;

const Key kKeys[] = {
    {"compute",
     [](TimeModel& model, std::size_t, const Value& value) {
       if (value.is_list())
         model.compute_of = value.numbers(0);
       else
         model.compute = value.number(0);
     }},
    {"compute_of.#",
     [](TimeModel& model, std::size_t number, const Value& value) {
       const auto rank = static_cast<std::size_t>(value.rank_in_key(number));
       if (model.compute_of.size() <= rank) model.compute_of.resize(rank + 1, model.compute);
       model.compute_of[rank] = value.number(0);
     }},
    {"latency",
     [](TimeModel& model, std::size_t, const Value& value) { model.link.latency = value.number(0); }},
    {"bandwidth", [](TimeModel& model, std::size_t,
                     const Value& value) { model.link.seconds_per_byte = seconds_per_byte(value); }},
    {"hosts.ranks_per_host",
     [](TimeModel& model, std::size_t, const Value& value) {
       model.ranks_per_host = static_cast<Rank>(value.whole(1, INT32_MAX));
     }},
    {"hosts.latency",
     [](TimeModel& model, std::size_t, const Value& value) { model.inside.latency = value.number(0); }},
    {"hosts.bandwidth", [](TimeModel& model, std::size_t,
                           const Value& value) { model.inside.seconds_per_byte = seconds_per_byte(value); }},
    {"link.#.from", [](TimeModel& model, std::size_t number,
                       const Value& value) { rule(model, number).from = value.ranks(); }},
    {"link.#.to", [](TimeModel& model, std::size_t number,
                     const Value& value) { rule(model, number).to = value.ranks(); }},
    {"link.#.latency", [](TimeModel& model, std::size_t number,
                          const Value& value) { rule(model, number).link.latency = value.number(0); }},
    {"link.#.bandwidth",
     [](TimeModel& model, std::size_t number, const Value& value) {
       rule(model, number).link.seconds_per_byte = seconds_per_byte(value);
     }},
    {"straggler.#.nodes", [](TimeModel& model, std::size_t number,
                             const Value& value) { straggler(model, number).nodes = value.ranks(); }},
    {"straggler.#.every", [](TimeModel& model, std::size_t number,
                             const Value& value) { straggler(model, number).every = value.whole(1, kMost); }},
    {"straggler.#.probability",
     [](TimeModel& model, std::size_t number, const Value& value) {
       straggler(model, number).probability = value.share();
     }},
    {"straggler.#.factor", [](TimeModel& model, std::size_t number,
                              const Value& value) { straggler(model, number).factor = value.number(0); }},
    {"straggler.#.extra", [](TimeModel& model, std::size_t number,
                             const Value& value) { straggler(model, number).extra = value.number(0); }},
};

// "straggler.2.nodes" -> "straggler.#.nodes" and 2.
std::string pattern_of(const std::string& key, std::size_t& number) {
  std::string pattern;
  std::size_t begin = 0;
  while (begin <= key.size()) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    std::string word = key.substr(begin, end - begin);
    const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
    if (read.ec == std::errc() && read.ptr == word.data() + word.size()) word = "#";
    pattern += (begin > 0 ? "." : "") + word;
    begin = end + 1;
  }
  return pattern;
}

void apply(TimeModel& model, const TomlEntry& entry, const std::string& where, Rank nodes) {
  std::size_t number = 0;
  const std::string pattern = pattern_of(entry.key, number);
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (key.name == pattern) return key.set(model, number, Value(entry, where, nodes));
    names.emplace_back(key.name);
  }
  throw Error(fmt::format("{}: {}", where, unknown_name("key", pattern, names)));
}

}  // namespace

TimeModel read_time_file(const std::string& path, Rank nodes) {
  TimeModel model;
  for (const TomlEntry& entry : read_toml(path))
    apply(model, entry, fmt::format("{}, line {}", path, entry.line), nodes);
  for (std::size_t i = 0; i < model.stragglers.size(); ++i)
    if (model.stragglers[i].factor == 1 && model.stragglers[i].extra == 0)
      throw Error(fmt::format(
          "{}: [[straggler]] number {} changes nothing; give it extra (seconds) or a factor", path, i + 1));
  return model;
}

}  // namespace starling::tool

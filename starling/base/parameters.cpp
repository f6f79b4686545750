#include "starling/base/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {
namespace {

template <typename Number>
bool read(const Spec& spec, Number& number) {
  if (spec.is_list || !spec.arguments.empty()) return false;
  const char* end = spec.word.data() + spec.word.size();
  const auto result = std::from_chars(spec.word.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}

std::string describe(const std::vector<Parameter>& declared) {
  if (declared.empty()) return "it takes none";
  std::vector<std::string> words;
  for (const auto& p : declared)
    words.push_back(p.fallback.empty() ? p.name + "=" : p.name + "=" + p.fallback);
  return "valid are " + join_words(words);
}

}  // namespace

Parameters::Parameters(const Spec& spec, const std::vector<Parameter>& declared) : owner_(spec.word) {
  for (const auto& parameter : declared) {
    names_.push_back(parameter.name);
    values_.push_back(parameter.fallback.empty() ? Spec{} : parse_spec(parameter.fallback));
    given_.push_back(false);
  }
  std::size_t position = 0;
  for (const auto& argument : spec.arguments) {
    std::size_t at = position;
    if (!argument.key.empty()) {
      at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), argument.key) - names_.begin());
      if (at == names_.size())
        throw InvalidArgument(
            fmt::format("{} has no parameter '{}'; {}", owner_, argument.key, describe(declared)));
    } else {
      if (at >= names_.size())
        throw InvalidArgument(fmt::format("{} has too many arguments; {}", owner_, describe(declared)));
      ++position;
    }
    if (given_[at]) throw InvalidArgument(fmt::format("{} is given '{}' twice", owner_, names_[at]));
    values_[at] = argument.value;
    given_[at] = true;
  }
  for (std::size_t i = 0; i < declared.size(); ++i)
    if (!given_[i] && declared[i].fallback.empty())
      throw InvalidArgument(
          fmt::format("{} needs {}= ({}); {}", owner_, names_[i], declared[i].help, describe(declared)));
}

std::size_t Parameters::index(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) throw Error(fmt::format("{} declares no parameter '{}'", owner_, name));
  return static_cast<std::size_t>(found - names_.begin());
}

bool Parameters::given(const std::string& name) const {
  return given_[index(name)];
}

bool Parameters::automatic(const std::string& name) const {
  const Spec& value = values_[index(name)];
  return !given(name) || (!value.is_list && value.arguments.empty() && value.word == "auto");
}

void Parameters::fail(const std::string& name, const std::string& expectation) const {
  throw InvalidArgument(fmt::format("{}: {}={} is not valid; expected {}", owner_, name,
                                    values_[index(name)].to_string(), expectation));
}

std::int64_t Parameters::integer(const std::string& name, std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  if (!read(values_[index(name)], value) || value < least || value > most)
    fail(name, fmt::format("a whole number from {} to {}", least, most));
  return value;
}

std::optional<std::int64_t> Parameters::optional_integer(const std::string& name, std::int64_t least,
                                                         std::int64_t most) const {
  if (automatic(name)) return std::nullopt;
  return integer(name, least, most);
}

double Parameters::number(const std::string& name, double least, double most) const {
  double value = 0;
  if (!read(values_[index(name)], value) || !(value >= least && value <= most))
    fail(name, fmt::format("a number from {} to {}", least, most));
  return value;
}

std::optional<double> Parameters::optional_number(const std::string& name, double least, double most) const {
  if (automatic(name)) return std::nullopt;
  return number(name, least, most);
}

std::uint64_t Parameters::seed() const {
  std::uint64_t value = 0;
  if (!read(values_[index("seed")], value)) fail("seed", "a whole number from 0 to 2^64-1");
  return value;
}

bool Parameters::yes(const std::string& name) const {
  const std::string& word = choice(name, {"yes", "no", "true", "false"});
  return word == "yes" || word == "true";
}

const std::string& Parameters::text(const std::string& name) const {
  const Spec& value = values_[index(name)];
  if (value.is_list || !value.arguments.empty()) fail(name, "one word, or text between double quotes");
  return value.word;
}

const std::string& Parameters::choice(const std::string& name, const std::vector<std::string>& valid) const {
  const Spec& value = values_[index(name)];
  if (value.is_list || !value.arguments.empty() ||
      std::find(valid.begin(), valid.end(), value.word) == valid.end())
    fail(name, "one of " + join_words(valid));
  return value.word;
}

const Spec& Parameters::spec(const std::string& name) const {
  return values_[index(name)];
}

std::vector<Rank> Parameters::ranks(const std::string& name, Rank n) const {
  const Spec& value = values_[index(name)];
  const auto check = [&](bool valid) {
    if (!valid) fail(name, fmt::format("ranks below {} in ascending order, such as [0,2,5..9]", n));
  };
  std::vector<Rank> ranks;
  const auto add = [&](const Spec& item) {
    Rank first = 0;
    Rank last = 0;
    if (read(item, first)) {
      last = first;
    } else {
      const std::size_t dots = item.word.find("..");
      check(!item.is_list && item.arguments.empty() && dots != std::string::npos &&
            read(Spec{item.word.substr(0, dots), false, {}}, first) &&
            read(Spec{item.word.substr(dots + 2), false, {}}, last));
    }
    check(first >= 0 && first <= last && last < n && (ranks.empty() || ranks.back() < first));
    for (Rank r = first; r <= last; ++r) ranks.push_back(r);
  };
  if (value.is_list) {
    for (const auto& item : value.arguments) add(item.value);
  } else {
    add(value);
  }
  check(!ranks.empty());
  return ranks;
}

}  // namespace starling

#include "starling/base/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/closest.h"
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

std::vector<std::string> names_of(const std::vector<Parameter>& declared) {
  std::vector<std::string> names;
  for (const Parameter& parameter : declared) names.push_back(parameter.name);
  return names;
}

std::size_t position_of(const std::vector<Parameter>& declared, const std::string& name) {
  const auto named = [&](const Parameter& parameter) { return parameter.name == name; };
  return static_cast<std::size_t>(std::find_if(declared.begin(), declared.end(), named) - declared.begin());
}

bool is_yes_or_no(const std::string& word) {
  return word == "yes" || word == "no" || word == "true" || word == "false";
}

// Integers stay exact; a word that only starts like a number is kept as it is.
std::string canonical_number(const Spec& spec) {
  const std::string& word = spec.word;
  std::int64_t whole = 0;
  std::uint64_t large = 0;
  double number = 0;
  if (read(spec, whole)) return std::to_string(whole);
  if (read(spec, large)) return std::to_string(large);
  const bool has_fraction = word.find_first_of(".eE") != std::string::npos;
  if (has_fraction && read(spec, number) && std::isfinite(number)) return fmt::format("{}", number);
  return word;
}

Spec canonical_value(const Spec& value, const Parameter& parameter) {
  Spec result = value;
  if (value.is_list) {
    for (Spec::Argument& item : result.arguments) item.value = canonical_value(item.value, parameter);
  } else if (is_yes_or_no(parameter.fallback) && is_yes_or_no(value.word)) {
    result.word = value.word == "yes" || value.word == "true" ? "true" : "false";
  } else if (value.arguments.empty()) {
    result.word = canonical_number(value);
  }
  return result;
}

}  // namespace

Parameters::Parameters(const Spec& spec, const std::vector<Parameter>& declared)
    : owner_(spec.word), declared_(declared) {
  for (const auto& parameter : declared) {
    values_.push_back(parameter.fallback.empty() ? Spec{} : parse_spec(parameter.fallback));
    given_.push_back(false);
  }
  std::size_t position = 0;
  for (const auto& argument : spec.arguments) {
    std::size_t at = position;
    if (!argument.key.empty()) {
      at = position_of(declared, argument.key);
      if (at == declared.size())
        throw InvalidArgument(fmt::format("{} has no parameter '{}'{}; {}", owner_, argument.key,
                                          closest_name_hint(argument.key, names_of(declared)),
                                          describe(declared)));
    } else {
      if (at >= declared.size())
        throw InvalidArgument(fmt::format("{} has too many arguments; {}", owner_, describe(declared)));
      ++position;
    }
    if (given_[at]) throw InvalidArgument(fmt::format("{} is given '{}' twice", owner_, declared[at].name));
    values_[at] = argument.value;
    given_[at] = true;
  }
  for (std::size_t i = 0; i < declared.size(); ++i)
    if (!given_[i] && declared[i].fallback.empty())
      throw InvalidArgument(fmt::format("{} needs {}= ({}); {}", owner_, declared[i].name, declared[i].help,
                                        describe(declared)));
}

std::size_t Parameters::index(const std::string& name) const {
  const std::size_t at = position_of(declared_, name);
  if (at == declared_.size()) throw Error(fmt::format("{} declares no parameter '{}'", owner_, name));
  return at;
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

Spec Parameters::canonical(const CanonicalPart& part) const {
  Spec spec{owner_, false, {}};
  for (std::size_t i = 0; i < declared_.size(); ++i) {
    const Parameter& parameter = declared_[i];
    Spec value = values_[i];
    if (parameter.kind == ParameterKind::value)
      value = canonical_value(value, parameter);
    else if (parameter.kind != ParameterKind::text && part)
      value = part(parameter.kind, value);
    spec.arguments.push_back({parameter.name, std::move(value)});
  }
  return spec;
}

}  // namespace starling

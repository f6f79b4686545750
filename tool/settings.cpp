#include "tool/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <set>

#include "starling/base/closest.h"
#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling::tool {
namespace {

template <typename T>
bool parse(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

bool read(const std::string& text, std::string& to) {
  to = text;
  return true;
}
bool read(const std::string& text, bool& to) {
  to = text == "true" || text == "yes";
  return to || text == "false" || text == "no";
}
bool read(const std::string& text, std::optional<double>& to) {
  return parse(text, to.emplace());
}
template <typename T>
bool read(const std::string& text, T& to) {
  return parse(text, to);
}

std::string as_text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}
template <typename T>
std::string as_text(const T& value) {
  return fmt::format("{}", value);
}

const char* wanted(const std::string*) {
  return "a text";
}
const char* wanted(const bool*) {
  return "true or false";
}
const char* wanted(const int*) {
  return "a whole number";
}
const char* wanted(const std::uint64_t*) {
  return "a whole number from 0 up";
}
const char* wanted(const double*) {
  return "a number";
}
const char* wanted(const std::optional<double>*) {
  return "a number";
}

bool fits(const std::string*, const TomlScalar& value) {
  return std::holds_alternative<std::string>(value);
}
bool fits(const bool*, const TomlScalar& value) {
  return std::holds_alternative<bool>(value);
}
bool fits(const double*, const TomlScalar& value) {
  return std::holds_alternative<double>(value) || std::holds_alternative<std::int64_t>(value);
}
bool fits(const std::optional<double>*, const TomlScalar& value) {
  return fits(static_cast<double*>(nullptr), value);
}
template <typename Whole>
bool fits(const Whole*, const TomlScalar& value) {
  return std::holds_alternative<std::int64_t>(value);
}

}  // namespace

std::string option_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::string to_text(const TomlScalar& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

void Settings::add(const std::string& name, std::string& target, const std::string& help,
                   const std::string& takes) {
  settings_.push_back({name, &target, help, takes});
}
void Settings::add(const std::string& name, int& target, const std::string& help) {
  settings_.push_back({name, &target, help, "NUMBER"});
}
void Settings::add(const std::string& name, double& target, const std::string& help) {
  settings_.push_back({name, &target, help, "NUMBER"});
}
void Settings::add(const std::string& name, std::optional<double>& target, const std::string& help) {
  settings_.push_back({name, &target, help, "NUMBER"});
}
void Settings::add(const std::string& name, bool& target, const std::string& help) {
  settings_.push_back({name, &target, help, "true|false"});
}
void Settings::add(const std::string& name, std::uint64_t& target, const std::string& help) {
  settings_.push_back({name, &target, help, "NUMBER"});
}

void Settings::add_former_name(const std::string& old, const std::string& name) {
  former_.push_back({old, name});
}

std::string Settings::current_name(const std::string& name) const {
  for (const FormerName& former : former_) {
    if (former.old != name) continue;
    say_renamed(former.old, former.name);
    return former.name;
  }
  return name;
}

void Settings::add_options(CLI::App& command) {
  for (Setting& setting : settings_) {
    const std::string name = setting.name;
    const auto add = [&](const std::string& typed) {
      const std::string option = option_name(typed);
      CLI::Option* added = command.add_option_function<std::string>(
          option,
          [this, &command, name, typed, option](const std::string& text) {
            if (typed != name) say_renamed(command, option, option_name(name));
            set(name, text, option);
          },
          setting.help);
      added->take_last();  // the last value typed counts
      added->type_name(setting.takes);
      if (const std::string now = text(name); !now.empty()) added->default_str(now);
      setting.options.push_back(added);
      return added;
    };
    add(name);
    for (const FormerName& former : former_)
      if (former.name == name) add(former.old)->group("");  // hidden
  }
}

void Settings::read_file(const std::string& path) {
  for (const TomlEntry& entry : read_toml(path)) {
    const std::string where = fmt::format("{}, line {}", path, entry.line);
    const std::string name = current_name(entry.key);
    demand(name, where);
    if (entry.list)
      throw Error(
          fmt::format("{}: {} takes one value, not a list; lists are for starling sweep", where, name));
    check_type(name, entry.values[0], where);
    if (from(name) != From::command_line) set(name, to_text(entry.values[0]), where);
  }
}

void Settings::check_type(const std::string& name, const TomlScalar& value, const std::string& where) const {
  std::visit(
      [&](auto* target) {
        if (fits(target, value)) return;
        const auto* text = std::get_if<std::string>(&value);
        auto parsed = *target;
        throw Error(fmt::format("{}: {} = {} is not {}{}", where, name,
                                text != nullptr ? '"' + *text + '"' : to_text(value), wanted(target),
                                text != nullptr && read(*text, parsed) ? "; write it without quotes" : ""));
      },
      demand(name, where).target);
}

void Settings::set(const std::string& name, const std::string& text, const std::string& where) {
  Setting& setting = settings_[static_cast<std::size_t>(&demand(name, where) - settings_.data())];
  std::visit(
      [&](auto* target) {
        if (!read(text, *target))
          throw Error(fmt::format("{}: {} = {} is not {}", where, name, text, wanted(target)));
      },
      setting.target);
  setting.where = where;
}

Settings::From Settings::from(const std::string& name) const {
  const Setting& setting = demand(name, name);
  for (const CLI::Option* option : setting.options)
    if (option->count() > 0) return From::command_line;
  return setting.where.empty() ? From::nobody : From::file;
}

std::vector<std::string> Settings::names() const {
  std::vector<std::string> all;
  for (const Setting& setting : settings_) all.push_back(setting.name);
  return all;
}

std::string Settings::text(const std::string& name) const {
  return std::visit([](const auto* target) { return as_text(*target); }, demand(name, name).target);
}

const Settings::Setting& Settings::demand(const std::string& name, const std::string& where) const {
  for (const Setting& setting : settings_)
    if (setting.name == name) return setting;
  throw Error(where + ": " + unknown_name("key", name, names()));
}

// Only one process of a job prints this: the one that the user started, or else rank 0.
void say_renamed(const std::string& old, const std::string& name) {
  static std::set<std::string> said;
  const bool started_by_us = environment::kWorkerErrors.is_set();
  if (environment::kRank.is_set() && (started_by_us || environment::kRank.text() != "0")) return;
  if (said.insert(old).second)
    std::cerr << fmt::format("starling: {} is now called {}; the old name will go away\n", old, name);
}

void say_renamed(const CLI::App& command, const std::string& old, const std::string& name) {
  if (command.get_option(name)->count() > 0)
    throw InvalidArgument(fmt::format("{} is the former name of {}: give one of them", old, name));
  say_renamed(old, name);
}

}  // namespace starling::tool

#include "tool/command.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <unistd.h>

#include "starling/base/closest.h"
#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling::tool {
namespace {

std::string& stored_command_line() {
  static std::string line;
  return line;
}

std::vector<std::string>& stored_arguments() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

namespace {

// The innermost command that was being parsed.
const CLI::App& innermost(const CLI::App& app) {
  const auto& parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());
  return names;
}

// "starling compare needs -n or --ranks"; "" if nothing is missing.
std::string missing_words(const CLI::App& app) {
  if (app.get_require_subcommand_min() > 0 && app.get_subcommands().empty())
    return fmt::format("{} needs a command: {}", full_name(app), join_words(command_names(app)));
  std::vector<std::string> missing;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    if (option->get_positional()) names.push_back(option->get_name(true));
    missing.push_back(join_words(names, " or "));
  }
  return missing.empty() ? "" : fmt::format("{} needs {}", full_name(app), join_words(missing, ", and "));
}

}  // namespace

std::string unknown_word(const CLI::App& app, const std::string& word) {
  const bool option = word.size() > 1 && word.front() == '-';
  const std::string typed = word.substr(0, option ? word.find('=') : std::string::npos);
  std::vector<std::string> valid;
  if (option)
    for (const CLI::Option* known : app.get_options())
      for (const std::string& name : known->get_lnames()) valid.push_back("--" + name);
  else
    valid = command_names(app);
  const std::string close = closest_name(typed, valid);
  return fmt::format("{} has no {} '{}'{}", full_name(app),
                     option          ? "option"
                     : valid.empty() ? "argument"
                                     : "command",
                     typed, close.empty() ? "" : fmt::format(" (did you mean {}?)", close));
}

std::string parse_problem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> words = command.remaining();
  // The word after an unknown option was its value; the words after an unknown command are its own.
  if (!words.empty() && words.front().starts_with('-'))
    std::erase_if(words, [](const std::string& word) { return !word.starts_with('-'); });
  else if (!words.empty() && !command_names(command).empty())
    words.resize(1);
  if (words.empty()) {
    const std::string missing = missing_words(command);
    return dynamic_cast<const CLI::RequiredError*>(&error) == nullptr || missing.empty() ? error.what()
                                                                                         : missing;
  }
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "; ") + unknown_word(command, word);
  return text;
}

int& exit_status() {
  thread_local int status = 0;
  return status;
}

void remember_command_line(int argc, char** argv) {
  stored_command_line() = "starling";
  for (int i = 1; i < argc; ++i) {
    stored_command_line() += ' ' + shell_quoted(argv[i]);
    stored_arguments().emplace_back(argv[i]);
  }
}

const std::string& command_line() {
  return stored_command_line();
}

const std::vector<std::string>& own_arguments() {
  return stored_arguments();
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

CLI::Validator whole_number() {
  return {[](const std::string& text) {
            const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
            return digits ? std::string() : text + " is not a whole number from 0 on";
          },
          "NUMBER"};
}

CLI::Validator seconds_above_0() {
  return {[](const std::string& text) {
            char* end = nullptr;
            const double seconds = std::strtod(text.c_str(), &end);
            const bool good = end != text.c_str() && *end == '\0' && seconds > 0 && std::isfinite(seconds);
            return good ? std::string() : text + " is not a number of seconds above 0";
          },
          "SECONDS"};
}

CLI::Validator byte_size() {
  return {[units = CLI::AsSizeValue(true)](std::string& text) {
            const std::string typed = text;
            try {
              if (units(text).empty()) return std::string();
            } catch (const CLI::ValidationError&) {  // thrown for unknown units
            }
            return typed + " is not a number of bytes, such as 4096, 400kB, 25MB, 1GB or 1GiB";
          },
          "BYTES"};
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  if (out) out << text;
  close_file(out, path);
}

void flush_output() {
  std::cout.flush();
  if (!std::cout) throw Error("cannot write to standard output");
}

void close_file(std::ofstream& out, const std::string& path) {
  const bool opened = out.is_open();
  out.close();
  if (out) return;
  const int error = errno;
  std::error_code ignored;
  if (opened && std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
  throw Error(fmt::format("cannot write {}: {}", path, std::strerror(error)));
}

void check_writable(const std::string& path) {
  const bool existed = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app))
    throw Error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  if (!existed) std::filesystem::remove(path);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

bool color_wanted() {
  return isatty(STDOUT_FILENO) != 0 && !environment::kNoColor.is_set();
}

}  // namespace starling::tool

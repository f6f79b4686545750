#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>

namespace starling::tool {

/// A value of a TOML file.
using TomlScalar = std::variant<bool, std::int64_t, double, std::string>;

/// One `key = value` of a TOML file, or `key = [value, ...]`.
struct TomlEntry {
  std::string key;
  std::size_t line = 0;
  std::vector<TomlScalar> values;
  bool list = false;
};

/// The file's entries in order; tables are flattened to `table.key`, lists of tables to `table.0.key`. Throws
/// Error with file and line.
std::vector<TomlEntry> read_toml(const std::string& path);

/// The option of a setting: `clip_norm` -> `--clip-norm`.
std::string option_name(std::string name);

/// The value as typed on a command line.
std::string to_text(const TomlScalar& value);

/// Settings that can be given as `--name VALUE` on a command line and as `name = value` in a TOML file; the
/// command line takes precedence.
class Settings {
 public:
  /// `takes` is the kind of value for the help text: FILE, DIR.
  void add(const std::string& name, std::string& target, const std::string& help,
           const std::string& takes = "TEXT");
  void add(const std::string& name, int& target, const std::string& help);
  void add(const std::string& name, double& target, const std::string& help);
  void add(const std::string& name, std::optional<double>& target, const std::string& help);
  void add(const std::string& name, bool& target, const std::string& help);
  void add(const std::string& name, std::uint64_t& target, const std::string& help);
  /// Accepts `old`, a former name of `name`, in files and on command lines, with a line that reports the new
  /// name.
  void add_former_name(const std::string& old, const std::string& name);

  /// Adds options to the command, with the targets' current values as defaults.
  void add_options(CLI::App& command);
  /// Call it after parsing: takes values from the file for settings that the command line does not give.
  void read_file(const std::string& path);
  /// Sets a value from text, as typed. Throws Error that starts with `where` and says what is valid.
  void set(const std::string& name, const std::string& text, const std::string& where);
  /// Throws Error with `where`, the name and what is valid unless the value has the right type for this name.
  void check_type(const std::string& name, const TomlScalar& value, const std::string& where) const;
  /// The source of a value; later sources take precedence.
  enum class From { nobody, file, command_line };
  From from(const std::string& name) const;
  /// Where the value was given, as in "mnist.toml, line 3" or "--lr", for messages.
  const std::string& where(const std::string& name) const { return demand(name, name).where; }
  std::vector<std::string> names() const;
  /// The current name of `name`; prints a notice if it is a former name.
  std::string current_name(const std::string& name) const;
  struct FormerName {
    std::string old;
    std::string name;
  };
  const std::vector<FormerName>& former_names() const { return former_; }
  const std::string& help(const std::string& name) const { return demand(name, name).help; }
  std::string text(const std::string& name) const;

 private:
  using Target = std::variant<std::string*, int*, double*, std::optional<double>*, bool*, std::uint64_t*>;
  struct Setting {
    std::string name;
    Target target;
    std::string help;
    std::string takes;
    std::vector<CLI::Option*> options = {};  // the second one has the former name
    std::string where = {};
  };
  const Setting& demand(const std::string& name, const std::string& where) const;

  std::vector<Setting> settings_;
  std::vector<FormerName> former_;
};

/// Prints on standard error, once and in one process of a job, that `old` is now called `name`.
void say_renamed(const std::string& old, const std::string& name);
/// The same for options of a command; throws InvalidArgument if both names are given.
void say_renamed(const CLI::App& command, const std::string& old, const std::string& name);

}  // namespace starling::tool

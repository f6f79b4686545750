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

/// One `key = value` of it, or `key = [value, ...]`.
struct TomlEntry {
  std::string key;
  std::size_t line = 0;
  std::vector<TomlScalar> values;
  bool list = false;
};

/// The file's entries in order; tables are flattened to `table.key`, lists of them to `table.0.key`. Throws
/// Error naming file and line.
std::vector<TomlEntry> read_toml(const std::string& path);

/// `clip_norm` -> `--clip-norm`.
std::string option_name(std::string name);

/// As it would be typed on a command line.
std::string to_text(const TomlScalar& value);

/// What can be set on a command line as `--name VALUE` and in a TOML file as `name = value`; command lines
/// win.
class Settings {
 public:
  /// `takes` is for the help: FILE, DIR.
  void add(const std::string& name, std::string& target, const std::string& help,
           const std::string& takes = "TEXT");
  void add(const std::string& name, int& target, const std::string& help);
  void add(const std::string& name, double& target, const std::string& help);
  void add(const std::string& name, std::optional<double>& target, const std::string& help);
  void add(const std::string& name, bool& target, const std::string& help);
  void add(const std::string& name, std::uint64_t& target, const std::string& help);
  /// `old` is a former name of `name`: accepted in files and on command lines, with one line that says so.
  void add_former_name(const std::string& old, const std::string& name);

  /// Options of the command, with the targets' present values as defaults.
  void add_options(CLI::App& command);
  /// After parsing: the file's values, for what the command line does not give.
  void read_file(const std::string& path);
  /// From text, as typed. Throws Error saying what would be valid; `where` comes first in it.
  void set(const std::string& name, const std::string& text, const std::string& where);
  /// Of the right type for this name? Throws Error naming `where`, the name and what would be valid.
  void check_type(const std::string& name, const TomlScalar& value, const std::string& where) const;
  /// Who gave it; the later win.
  enum class From { nobody, file, command_line };
  From from(const std::string& name) const;
  /// "mnist.toml, line 3" or "--lr", for messages.
  const std::string& where(const std::string& name) const { return demand(name, name).where; }
  std::vector<std::string> names() const;
  /// The name under which `name` is known now; says so if it is a former one.
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
    std::vector<CLI::Option*> options = {};  // the second is a former name's
    std::string where = {};
  };
  const Setting& demand(const std::string& name, const std::string& where) const;

  std::vector<Setting> settings_;
  std::vector<FormerName> former_;
};

/// Says on standard error, once and by one process of a job, that `old` is now called `name`.
void say_renamed(const std::string& old, const std::string& name);
/// The same for options of a command; throws InvalidArgument if both names are given.
void say_renamed(const CLI::App& command, const std::string& old, const std::string& name);

}  // namespace starling::tool

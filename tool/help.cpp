#include <algorithm>
#include <memory>
#include <set>
#include <sstream>

#include "tool/command.h"

namespace starling::tool {
namespace {

bool is_plain_type(std::string_view word) {
  return word.empty() || word == "TEXT" || word == "INT" || word == "UINT" || word == "FLOAT";
}

// The value that an option takes, from the parser's "UINT:SIZE [b, kb, ...]:UINT in [1 - 9]": its type,
// unless a check says more than a range.
std::string value_name(const std::string& types) {
  const std::string type = types.substr(0, types.find(':'));
  if (!is_plain_type(type)) return type;
  for (std::size_t at = type.size(); at < types.size();) {
    const std::size_t end = std::min(types.find(':', at + 1), types.size());
    std::string check = types.substr(at + 1, end - at - 1);
    at = end;
    if (check.find(" in [") != std::string::npos) continue;
    if (!check.starts_with('{')) return check.substr(0, check.find(" ["));
    std::replace(check.begin(), check.end(), ',', '|');
    return check.substr(1, check.size() - 2);
  }
  return type == "TEXT" || type.empty() ? type : "NUMBER";
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::string text;
  for (const CLI::Option* option : options) text += (text.empty() ? "" : ", ") + option->get_name();
  return text;
}

/// Writes `--method METHOD...`, and further properties of an option after its description.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (!app->get_allow_extras()) return usage;
    usage.resize(usage.find_last_not_of('\n') + 1);
    return usage + " PROGRAM [ARGUMENTS...]\n";
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    std::string about = option->get_description();
    if (!option->get_option_text().empty()) {
      name += " " + option->get_option_text();
    } else if (option->get_type_size() != 0) {
      if (!is_positional) name += " " + value_name(option->get_type_name());
      if (option->get_allow_extra_args() && option->get_expected_max() > 1) name += "...";
      std::string fallback = option->get_default_str();
      if (fallback.starts_with('[')) fallback = fallback.substr(1, fallback.size() - 2);  // a list
      if (!fallback.empty()) about += " (default: " + fallback + ")";
      if (option->get_required() && !is_positional) about += " (required)";
    }
    if (!option->get_needs().empty()) about += " (with " + names_of(option->get_needs()) + ")";
    if (!option->get_excludes().empty()) about += " (not with " + names_of(option->get_excludes()) + ")";
    std::ostringstream out;
    CLI::detail::format_help(out, name, about, column_width_);
    return out.str();
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(34);
  return formatter;
}

}  // namespace starling::tool

#include <fmt/format.h>
#include <toml++/toml.h>

#include "starling/base/error.h"
#include "tool/settings.h"

namespace starling::tool {
namespace {

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* inner = node.as_table()) {
        read(*inner, name + ".");
        continue;
      }
      if (node.is_array_of_tables()) {
        std::size_t number = 0;
        for (const toml::node& item : *node.as_array())
          read(*item.as_table(), fmt::format("{}.{}.", name, number++));
        continue;
      }
      TomlEntry entry{name, node.source().begin.line, {}, node.is_array()};
      if (const toml::array* array = node.as_array()) {
        for (const toml::node& item : *array) entry.values.push_back(scalar(name, item));
        if (entry.values.empty()) refuse(node, name, "an empty list");
      } else {
        entry.values.push_back(scalar(name, node));
      }
      entries.push_back(std::move(entry));
    }
  }

  std::vector<TomlEntry> entries;

 private:
  TomlScalar scalar(const std::string& name, const toml::node& node) const {
    if (const auto* value = node.as_boolean()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_string()) return value->get();
    refuse(node, name, "neither a text nor a number nor true or false");
  }

  [[noreturn]] void refuse(const toml::node& node, const std::string& name, const std::string& why) const {
    throw Error(fmt::format("{}, line {}: {} is {}", path_, node.source().begin.line, name, why));
  }

  std::string path_;
};

}  // namespace

std::vector<TomlEntry> read_toml(const std::string& path) {
  Reader reader(path);
  try {
    reader.read(toml::parse_file(path), "");
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    throw Error(line > 0 ? fmt::format("{}, line {}: {}", path, line, error.description())
                         : fmt::format("{}: {}", path, error.description()));
  }
  std::sort(reader.entries.begin(), reader.entries.end(),
            [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return std::move(reader.entries);
}

}  // namespace starling::tool

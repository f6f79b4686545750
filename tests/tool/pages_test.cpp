#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "starling/method/registry.h"
#include "tool/tool_runner.h"

// The documentation's names and examples must match the library.

namespace starling::tool {
namespace {

using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream text(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string trimmed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first);
}

// The names in the first cells of the page's tables, as `name(parameter=default)`, by name.
std::map<std::string, std::string> methods_on_the_page() {
  std::map<std::string, std::string> rows;
  bool among_methods = false;
  for (const std::string& line : lines_of(STARLING_DOCS "/methods.md")) {
    if (!line.starts_with("|")) among_methods = false;
    if (line.starts_with("| method | x becomes |")) among_methods = true;
    if (!among_methods || !line.starts_with("| `")) continue;
    const std::string spec = line.substr(3, line.find('`', 3) - 3);
    const auto [row, added] = rows.emplace(spec.substr(0, spec.find('(')), spec);
    EXPECT_TRUE(added) << row->first << " has two rows";
  }
  return rows;
}

TEST(MethodsPageTest, HasARowForEveryMethodWithItsParametersAndDefaults) {
  std::map<std::string, std::string> rows = methods_on_the_page();
  for (const MethodFamily& family : method_families()) {
    ASSERT_TRUE(rows.contains(family.name)) << "docs/methods.md has no row for " << family.name;
    std::string expected;
    for (const Parameter& parameter : family.parameters)
      expected += (expected.empty() ? "" : ", ") + parameter.name + "=" + parameter.fallback;
    EXPECT_EQ(rows[family.name], expected.empty() ? family.name : family.name + "(" + expected + ")");
    rows.erase(family.name);
  }
  for (const auto& [name, spec] : rows)
    ADD_FAILURE() << "docs/methods.md has " << name << ", which is not there";
}

TEST(MethodsPageTest, CountsThem) {
  EXPECT_THAT(read_file(STARLING_DOCS "/methods.md"),
              HasSubstr("There are " + std::to_string(method_families().size()) + ";"));
}

// Compares line by line, so that the page may leave parts out.
TEST(OwnMethodPageTest, ShowsTheExampleAsItIs) {
  std::vector<std::string> example = lines_of(STARLING_EXAMPLES "/my_method.cpp");
  std::transform(example.begin(), example.end(), example.begin(), trimmed);
  bool code = false;
  int shown = 0;
  for (const std::string& line : lines_of(STARLING_DOCS "/own-method.md")) {
    if (line.starts_with("```")) {
      code = line == "```cpp";
    } else if (code && !trimmed(line).empty()) {
      ++shown;
      EXPECT_THAT(example, testing::Contains(trimmed(line)));
    }
  }
  EXPECT_GT(shown, 30);
}

}  // namespace
}  // namespace starling::tool

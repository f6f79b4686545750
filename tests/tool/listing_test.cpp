#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "starling/codec/registry.h"
#include "starling/method/registry.h"
#include "starling/topology/registry.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t letters = 0;
    for (const char c : line) letters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(letters, 80) << line;
  }
}

template <typename Family>
void expect_listed(const std::string& command, const std::vector<Family>& families) {
  const ToolRun table = run_tool({command});
  EXPECT_EQ(table.status, 0) << table.err;
  expect_narrow(table.out);
  const json list = run_tool({command, "--json"}).json();
  ASSERT_EQ(list.size(), families.size());
  for (std::size_t i = 0; i < families.size(); ++i) {
    EXPECT_THAT(table.out, HasSubstr("\n" + families[i].name + " "));
    EXPECT_EQ(list[i].at("name"), families[i].name);
    EXPECT_EQ(list[i].at("summary"), families[i].summary);
    ASSERT_EQ(list[i].at("parameters").size(), families[i].parameters.size());
    for (std::size_t p = 0; p < families[i].parameters.size(); ++p)
      EXPECT_EQ(list[i].at("parameters")[p].at("name"), families[i].parameters[p].name);
    const ToolRun one = run_tool({command, families[i].name});
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_THAT(one.out, HasSubstr(families[i].summary));
    for (const Parameter& parameter : families[i].parameters)
      EXPECT_THAT(one.out, HasSubstr(parameter.name + "=" + parameter.fallback));
  }
}

TEST(ListingTest, ShowsEveryMethod) {
  expect_listed("methods", method_families());
}
TEST(ListingTest, ShowsEveryTopology) {
  expect_listed("topologies", topology_families());
}
TEST(ListingTest, ShowsEveryCodec) {
  expect_listed("codecs", codec_families());
}

TEST(ListingTest, RequirementsAreThoseOfTheMethod) {
  const json extra = run_tool({"methods", "extra", "--json"}).json();
  EXPECT_EQ(extra.at("requirements").at("topology"), "static symmetric weights");
  EXPECT_TRUE(extra.at("requirements").at("optimizer").is_null());
  EXPECT_EQ(run_tool({"methods", "dadam", "--json"}).json().at("requirements").at("optimizer"), "adam");
  const ToolRun choco = run_tool({"methods", "choco"});
  EXPECT_THAT(choco.out,
              AllOf(HasSubstr("its codec makes the messages"), HasSubstr("ring, torus, exponential")));
  EXPECT_THAT(run_tool({"methods"}).out, HasSubstr("needs static symmetric weights"));
}

TEST(ListingTest, NamesTheClosestOne) {
  const ToolRun run = run_tool({"methods", "dsgd-awk"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("unknown method 'dsgd-awk' (did you mean dsgd-awc?)"));
}

}  // namespace
}  // namespace starling::tool

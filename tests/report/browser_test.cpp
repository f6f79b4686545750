#include "report/browser.h"

#include <gtest/gtest.h>
#include <set>

#include "report/toy_runs.h"
#include "starling/report/training_page.h"

namespace starling::report {
namespace {

const Provenance kProvenance = {"starling report runs", "1.2.3", "2026-11-16"};

class Browser : public testing::TestWithParam<BrowserView> {
 protected:
  void SetUp() override {
    if (find_browser().empty()) GTEST_SKIP() << "no chromium in PATH to open the page in";
  }

  // Every view of every chart must show every line of its legend.
  BrowserFindings check(const std::vector<RunLog>& runs) {
    const BrowserFindings findings = open_in_browser(training_page(runs, "", kProvenance), GetParam());
    EXPECT_TRUE(findings.opened) << findings.raw;
    EXPECT_EQ(findings.console, "");
    EXPECT_EQ(findings.dark, GetParam().dark);
    EXPECT_EQ(findings.width, GetParam().width);
    EXPECT_LE(findings.content_width, findings.width) << "the page scrolls sideways";
    std::set<std::string> seen;
    for (const auto& drawing : findings.drawings) {
      EXPECT_TRUE(seen.insert(drawing.name).second) << "no other view behind the button: " << drawing.name;
      EXPECT_GT(drawing.expected, 0) << drawing.name;
      EXPECT_EQ(drawing.found, drawing.expected) << drawing.name;
    }
    return findings;
  }
};

TEST_P(Browser, DrawsOneRun) {
  EXPECT_EQ(check({toy_run({})}).drawings.size(), 10U);  // three charts with three x axes each, and the bars
}

TEST_P(Browser, DrawsASweep) {
  EXPECT_EQ(check(toy_sweep()).drawings.size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Views, Browser, testing::Values(BrowserView{1200, false}, BrowserView{390, true}),
                         [](const auto& view) { return view.param.dark ? "PhoneDark" : "DeskLight"; });

TEST(BrowserProbe, DetectsErrors) {
  if (find_browser().empty()) GTEST_SKIP() << "no chromium in PATH to open the page in";
  std::string html = training_page({toy_run({})}, "", kProvenance);
  const std::string draw = "querySelectorAll(\"figure.chart\").forEach(draw)";
  const std::size_t at = html.find(draw);
  ASSERT_NE(at, std::string::npos);
  html.replace(at, draw.size(), "querySelectorAll(\"figure.chart\").forEach(noSuchFunction)");
  const BrowserFindings findings = open_in_browser(html, {});
  EXPECT_TRUE(findings.opened) << findings.raw;
  EXPECT_NE(findings.console.find("noSuchFunction"), std::string::npos) << findings.raw;
  for (const auto& drawing : findings.drawings) EXPECT_EQ(drawing.found, 0) << drawing.name;
}

}  // namespace
}  // namespace starling::report

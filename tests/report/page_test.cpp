#include "starling/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include <nlohmann/json.hpp>

#include "report/markup_checker.h"
#include "report/toy_schedule.h"
#include "starling/report/page_parts.h"
#include "starling/report/topology_svg.h"

namespace starling::report {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>&\"";

const Provenance kPageProvenance = {"starling simulate ring --n 16 > 'a b.html'", "1.2.3", "2025-01-31"};

LineChart toy_chart(const std::string& name) {
  return {name, "x", "y", false, true, {{name, {1, 2, 3}, {1, 0.5, 0.25}}}};
}

/// The page without scripts, styles and doctype, so that an XML reader accepts it.
std::string body_of(const std::string& html) {
  const std::size_t start = html.find("<body>");
  const std::size_t end = html.find("<footer>");
  std::string body = html.substr(start, end - start) + "</body>";
  for (std::size_t at = body.find("<script"); at != std::string::npos; at = body.find("<script"))
    body.erase(at, body.find("</script>", at) + 9 - at);
  return body;
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

Page full_page(const std::string& text) {
  Page page(text, text);
  Table table({{text.c_str(), Align::left}, "number"});
  table.title(text).row({text, "1.5"}).rule().row({"b", "12"}).footnote(text);
  LineChart chart = toy_chart(text);
  chart.note = text;
  page.paragraph(text).facts({{text, text}});
  page.section(text).table(table).chart(chart).section("two").paragraph(text);
  page.folded(text, table)
      .code(text)
      .charts(text, {chart, chart})
      .chart(BarChart{text, text, {text}, {{text, {1}}}});
  page.pictures({{topology_svg(ToySchedule(text, 4, 1, toy_ring(4))), text}});
  return page;
}

TEST(Page, TagsBalance) {
  const CheckedMarkup body = check_markup(body_of(full_page("plain").html(kPageProvenance)));
  EXPECT_EQ(body.problem, "");
  EXPECT_EQ(body.count("section"), 2U);
  EXPECT_EQ(body.count("canvas"), 3U);
  EXPECT_EQ(body.count("table"), 2U);
  EXPECT_EQ(body.count("details"), 1U);
  EXPECT_EQ(body.count_class("views"), 1U);
  EXPECT_EQ(body.count("svg"), 1U);
}

TEST(Page, HostileTextStaysText) {
  const Provenance hostile = {kHostile, kHostile, kHostile};
  const std::string html = full_page(kHostile).html(hostile);
  EXPECT_EQ(check_markup(body_of(html)).problem, "");
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  // The data of the charts (one has two views), Chart.js, and our own script.
  EXPECT_EQ(occurrences(html, "<script"), 6U);
  EXPECT_EQ(occurrences(html, "</script"), 6U);
}

TEST(Page, LoadsNothing) {
  std::string html = full_page("plain").html(kPageProvenance);
  // Addresses may appear only as names of XML namespaces and in the comments of Chart.js.
  const std::regex address("https?://[^\\s\"'<>)]*");
  for (auto it = std::sregex_iterator(html.begin(), html.end(), address); it != std::sregex_iterator();
       ++it) {
    const std::string found = it->str();
    EXPECT_TRUE(found == "http://www.w3.org/2000/svg" ||
                std::string(embedded::chart_js()).find(found) != std::string::npos)
        << found;
  }
  EXPECT_THAT(html, HasSubstr("default-src &#39;none&#39;"));
  EXPECT_THAT(html, Not(HasSubstr(" src=")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  EXPECT_THAT(html, Not(HasSubstr("url(")));
}

TEST(Page, ChartDataComesBack) {
  LineChart chart = toy_chart(kHostile);
  chart.series[0].y[1] = 1.0 / 3;
  const std::string html = Page("t").chart(chart).html(kPageProvenance);
  const std::string opening = "class=\"chart-data\">";
  const std::size_t start = html.find(opening) + opening.size();
  const nlohmann::json data =
      nlohmann::json::parse(html.substr(start, html.find("</script>", start) - start));
  EXPECT_EQ(data["title"], kHostile);
  EXPECT_EQ(data["series"][0]["name"], kHostile);
  EXPECT_EQ(data["series"][0]["x"], nlohmann::json({1, 2, 3}));
  EXPECT_NEAR(data["series"][0]["y"][1], 1.0 / 3, 1e-9);
}

TEST(Page, ChartJsTravelsOnlyWithCharts) {
  const std::string without = Page("t").paragraph("p").html(kPageProvenance);
  EXPECT_LT(without.size(), 20'000U);
  EXPECT_THAT(without, Not(HasSubstr("<script")));
  const std::string with = Page("t").chart(toy_chart("c")).html(kPageProvenance);
  EXPECT_THAT(with, HasSubstr("Chart.js v3"));
  EXPECT_THAT(with, HasSubstr("<noscript>"));
}

TEST(Page, NumbersStandRight) {
  Table table({"word", "number"});
  table.row({"a", "1.5"}).row({"b", "12"});
  const std::string html = Page("t").table(table).html(kPageProvenance);
  EXPECT_THAT(html, HasSubstr("<th>word</th><th class=\"right\">number</th>"));
  EXPECT_THAT(html, HasSubstr("<td>a</td><td class=\"right\">1.5</td>"));
}

TEST(Page, WidePicturesScrollOnAPhone) {
  const std::string html = Page("t")
                               .pictures({{"<svg width=\"700\"></svg>"}, {"<svg width=\"400\"></svg>"}})
                               .html(kPageProvenance);
  EXPECT_THAT(html, HasSubstr("<figure class=\"card picture wide\">\n<svg width=\"700\">"));
  EXPECT_THAT(html, HasSubstr("<figure class=\"card picture\">\n<svg width=\"400\">"));
}

TEST(Page, TablesWithoutHeadersHaveNoHeadLine) {
  Table table({"", ""});
  table.row({"a", "b"});
  EXPECT_THAT(Page("t").table(table).html(kPageProvenance), Not(HasSubstr("<th")));
}

TEST(Page, SaysWhereItComesFrom) {
  const std::string html = Page("t").html(kPageProvenance);
  EXPECT_THAT(html, HasSubstr("<code>starling simulate ring --n 16 &gt; &#39;a b.html&#39;</code>"));
  EXPECT_THAT(html, HasSubstr("Starling 1.2.3 · 2025-01-31"));
}

}  // namespace
}  // namespace starling::report

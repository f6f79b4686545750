#include "starling/report/chart.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/base/json.h"

namespace starling::report {
namespace {

using testing::ElementsAre;

template <typename Chart>
nlohmann::json written(const Chart& chart) {
  std::ostringstream out;
  JsonWriter json(out);
  write_chart(json, chart);
  return nlohmann::json::parse(out.str());
}

Series long_series(std::size_t count) {
  Series series{"long", {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    series.x.push_back(double(i));
    series.y.push_back(1 / (1.0 + double(i)));
  }
  return series;
}

TEST(Chart, ShortSeriesStayAsTheyAre) {
  const Series series = decimated({"s", {3, 1, 2}, {1, 2, -3}}, false, false, 400);
  EXPECT_THAT(series.x, ElementsAre(3, 1, 2));
  EXPECT_THAT(series.y, ElementsAre(1, 2, -3));
}

TEST(Chart, LongSeriesKeepEndsOrderAndPeaks) {
  Series series = long_series(100'000);
  series.y[54'321] = 7;
  series.y[65'432] = -7;
  const Series kept = decimated(series, false, false, 400);
  EXPECT_LE(kept.x.size(), 400U);
  EXPECT_GE(kept.x.size(), 200U);
  EXPECT_EQ(kept.x.front(), 0);
  EXPECT_EQ(kept.x.back(), 99'999);
  EXPECT_TRUE(std::is_sorted(kept.x.begin(), kept.x.end()));
  EXPECT_EQ(*std::max_element(kept.y.begin(), kept.y.end()), 7);
  EXPECT_EQ(*std::min_element(kept.y.begin(), kept.y.end()), -7);
}

TEST(Chart, LogarithmicAxesKeepTheFirstSteps) {
  const Series kept = decimated(long_series(1'000'000), true, true, 400);
  EXPECT_LE(kept.x.size(), 400U);
  // On this axis, the first steps are far from each other, so all are kept.
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(kept.x[i], double(i + 1));
}

TEST(Chart, UnsortedSeriesStayBounded) {
  Series series = long_series(10'000);
  std::reverse(series.x.begin(), series.x.end());
  EXPECT_LE(decimated(series, false, false, 400).x.size(), 400U);
  for (double& x : series.x) x = 5;
  EXPECT_LE(decimated(series, true, false, 400).x.size(), 400U);
}

TEST(Chart, DropsPointsThatAnAxisCannotShow) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const Series series{"s", {0, 1, 2, 3, 4, nan}, {1, nan, inf, -1, 0, 1}};
  EXPECT_THAT(decimated(series, false, false, 400).x, ElementsAre(0, 3, 4));
  // An exact zero is kept and drawn at the floor
  EXPECT_THAT(decimated(series, true, true, 400).x, ElementsAre(4));
}

TEST(Chart, DataComesBack) {
  const LineChart chart{"T",   "step", "error", true, true, {{"a </script>", {1, 2, 3}, {1, 0.25, 0}, true}},
                        "note"};
  const nlohmann::json back = written(chart);
  EXPECT_EQ(back["title"], "T");
  EXPECT_EQ(back["xLabel"], "step");
  EXPECT_EQ(back["yLabel"], "error");
  EXPECT_EQ(back["logX"], true);
  EXPECT_EQ(back["logY"], true);
  EXPECT_EQ(back["series"][0]["name"], "a </script>");
  EXPECT_EQ(back["series"][0]["dashed"], true);
  EXPECT_EQ(back["series"][0]["x"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(back["series"][0]["y"], nlohmann::json({1, 0.25, 0}));
  EXPECT_DOUBLE_EQ(back["floor"], 0.1);
}

TEST(Chart, FloorLiesBelowEverythingPositive) {
  LineChart chart;
  chart.log_y = true;
  chart.series = {{"s", {1, 2}, {1e-5, 0}}};
  EXPECT_DOUBLE_EQ(written(chart)["floor"], 1e-6);
  chart.y_floor = 1e-3;
  EXPECT_DOUBLE_EQ(written(chart)["floor"], 1e-3);
  chart.y_floor = 0;
  chart.series = {{"s", {1}, {0}}};
  EXPECT_GT(written(chart)["floor"], 0);
}

TEST(Chart, LengthsMustAgree) {
  LineChart chart;
  chart.series = {{"s", {1, 2}, {1}}};
  EXPECT_THROW(written(chart), InvalidArgument);
}

TEST(Chart, BarsHaveOneValuePerRow) {
  BarChart chart{"t", "seconds", {"a", "b"}, {{"computing", {1, 2}}, {"waiting", {0.5, std::nan("")}}}};
  const nlohmann::json data = written(chart);
  EXPECT_EQ(data["xLabel"], "seconds");
  EXPECT_EQ(data["rows"], nlohmann::json({"a", "b"}));
  EXPECT_EQ(data["parts"][0]["name"], "computing");
  EXPECT_EQ(data["parts"][0]["values"], nlohmann::json({1, 2}));
  EXPECT_EQ(data["parts"][1]["values"], nlohmann::json({0.5, 0}));
  chart.parts[1].values.pop_back();
  EXPECT_THROW(written(chart), InvalidArgument);
}

}  // namespace
}  // namespace starling::report

#include "starling/report/chart.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "starling/base/error.h"
#include "starling/base/json.h"

namespace starling::report {
namespace {

constexpr std::size_t kMostPoints = 400;

Series showable(const Series& series, bool log_x, bool log_y) {
  if (series.x.size() != series.y.size())
    throw InvalidArgument(fmt::format("series '{}' has {} values of x but {} of y", series.name,
                                      series.x.size(), series.y.size()));
  Series kept{series.name, {}, {}, series.dashed};
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    const double x = series.x[i];
    const double y = series.y[i];
    if (!std::isfinite(x) || !std::isfinite(y) || (log_x && x <= 0) || (log_y && y < 0)) continue;
    kept.x.push_back(x);
    kept.y.push_back(y);
  }
  return kept;
}

/// The whole power of ten below all positive values, where exact zeros are drawn.
double axis_floor(const std::vector<Series>& series) {
  double least = std::numeric_limits<double>::infinity();
  for (const Series& one : series)
    for (const double y : one.y)
      if (y > 0) least = std::min(least, y);
  return std::isfinite(least) ? std::pow(10, std::floor(std::log10(least) - 1e-9)) : 1;
}

}  // namespace

Series decimated(const Series& series, bool log_x, bool log_y, std::size_t most) {
  Series all = showable(series, log_x, log_y);
  const std::size_t count = all.x.size();
  if (count <= most || most < 4) return all;
  const auto scale = [&](double x) { return log_x ? std::log(x) : x; };
  const double first = scale(all.x.front());
  const double width = scale(all.x.back()) - first;
  const std::size_t stretches = (most - 2) / 2;
  const bool by_x = width > 0 && std::is_sorted(all.x.begin(), all.x.end());
  const auto stretch_of = [&](std::size_t i) {
    const double share = by_x ? (scale(all.x[i]) - first) / width : double(i) / double(count);
    return std::min(stretches - 1, static_cast<std::size_t>(share * double(stretches)));
  };

  Series kept{all.name, {}, {}, all.dashed};
  const auto keep = [&](std::size_t i) {
    kept.x.push_back(all.x[i]);
    kept.y.push_back(all.y[i]);
  };
  keep(0);
  for (std::size_t i = 1; i + 1 < count;) {
    std::size_t lowest = i, highest = i;
    const std::size_t stretch = stretch_of(i);
    for (; i + 1 < count && stretch_of(i) == stretch; ++i) {
      if (all.y[i] < all.y[lowest]) lowest = i;
      if (all.y[i] > all.y[highest]) highest = i;
    }
    keep(std::min(lowest, highest));
    if (lowest != highest) keep(std::max(lowest, highest));
  }
  keep(count - 1);
  return kept;
}

void write_chart(JsonWriter& json, const LineChart& chart) {
  std::vector<Series> shown;
  for (const Series& series : chart.series)
    shown.push_back(decimated(series, chart.log_x, chart.log_y, kMostPoints));

  json.begin_object();
  json.member("title", chart.title).member("xLabel", chart.x_label).member("yLabel", chart.y_label);
  json.member("logX", chart.log_x).member("logY", chart.log_y).member("markers", chart.markers);
  if (chart.log_y) json.member("floor", chart.y_floor > 0 ? chart.y_floor : axis_floor(shown));
  json.key("series").begin_array();
  for (const Series& series : shown) {
    json.begin_object(JsonWriter::Layout::one_line);
    json.member("name", series.name)
        .member("dashed", series.dashed)
        .member("x", series.x)
        .member("y", series.y);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_chart(JsonWriter& json, const BarChart& chart) {
  json.begin_object();
  json.member("title", chart.title).member("xLabel", chart.x_label).member("rows", chart.rows);
  json.key("parts").begin_array();
  for (const BarChart::Part& part : chart.parts) {
    if (part.values.size() != chart.rows.size())
      throw InvalidArgument(fmt::format("part '{}' of a bar chart has {} values for {} rows", part.name,
                                        part.values.size(), chart.rows.size()));
    std::vector<double> values = part.values;
    for (double& value : values)
      if (!std::isfinite(value)) value = 0;
    json.begin_object(JsonWriter::Layout::one_line)
        .member("name", part.name)
        .member("values", values)
        .end_object();
  }
  json.end_array().end_object();
}

}  // namespace starling::report

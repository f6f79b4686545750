#pragma once

#include <string>
#include <vector>

#include "starling/base/json.h"

namespace starling::report {

/// A line of a chart; x and y have equal lengths. Points that are not finite are left out.
struct Series {
  std::string name;
  std::vector<double> x = {}, y = {};
  bool dashed = false;  // for example theory beside a measurement
};

struct LineChart {
  std::string title = {}, x_label = {}, y_label = {};
  bool log_x = false;
  bool log_y = false;
  std::vector<Series> series = {};
  std::string note = {};  // a line of text below the chart
  double y_floor =
      0;  // smaller values are drawn at the bottom of a logarithmic axis; 0: below all positive values
  bool markers = false;  // a dot at every point, for series with few points
};

/// Stacked bars, one per row, for values that add up, such as seconds of computing and waiting.
struct BarChart {
  /// One color of the stack, with a value per row.
  struct Part {
    std::string name;
    std::vector<double> values = {};
  };
  std::string title = {}, x_label = {};
  std::vector<std::string> rows = {};
  std::vector<Part> parts = {};
  std::string note = {};
};

/// At most `most` points that look like all of them: the first, the last, and the lowest and highest of each
/// section of the axis. Drops values that an axis cannot show: those not finite, and x <= 0 or y < 0 on a
/// logarithmic axis.
Series decimated(const Series& series, bool log_x, bool log_y, std::size_t most);

/// Writes the data that the page's script draws; see page_script.cpp. Throws InvalidArgument for series with
/// x and y of different lengths.
void write_chart(JsonWriter& json, const LineChart& chart);

/// Throws InvalidArgument for a part without exactly one value per row. Values that are not finite count as
/// zero.
void write_chart(JsonWriter& json, const BarChart& chart);

}  // namespace starling::report

namespace starling {
using report::BarChart;
using report::LineChart;
using report::Series;
}  // namespace starling

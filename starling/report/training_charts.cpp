#include "starling/report/training_charts.h"

#include <algorithm>
#include <functional>

namespace starling::report {
namespace {

using Entries = std::vector<RunTask::Member>;
using Value = std::function<std::optional<double>(const RunReport&)>;

struct Line {
  std::string name;
  const RunReport* first;
  std::size_t count;
  Value value;
  bool dashed = false;
};

struct Against {
  const char* label;
  double (*x)(const RunReport&);
};

constexpr Against kAgainst[] = {
    {"step", [](const RunReport& r) { return static_cast<double>(r.step); }},
    {"seconds", [](const RunReport& r) { return r.seconds; }},
    {"bytes sent", [](const RunReport& r) { return static_cast<double>(r.bytes_sent); }},
};

// One view per x axis; leaves out views in which x does not change (a single worker sends nothing).
std::vector<LineChart> views(const LineChart& frame, const std::vector<Line>& lines) {
  std::vector<LineChart> charts;
  for (const Against& against : kAgainst) {
    LineChart chart = frame;
    chart.title += std::string(" against ") + against.label;
    chart.x_label = against.label;
    bool moves = false;
    for (const Line& line : lines) {
      Series series{line.name, {}, {}, line.dashed};
      for (const RunReport* report = line.first; report != line.first + line.count; ++report)
        if (const auto y = line.value(*report)) {
          series.x.push_back(against.x(*report));
          series.y.push_back(*y);
        }
      moves = moves || (!series.x.empty() && series.x.back() > 0);
      // even an empty series, so that colors are the same in all charts
      chart.series.push_back(std::move(series));
    }
    if (moves) charts.push_back(std::move(chart));
  }
  return charts;
}

// The reports of all entries, which must live while the charts are made.
std::vector<std::vector<RunReport>> reports_of(const Entries& entries) {
  std::vector<std::vector<RunReport>> reports;
  for (const RunTask::Member& entry : entries) reports.push_back(entry.cell->mean_reports());
  return reports;
}

Value percent(std::optional<double> RunReport::*share) {
  return [share](const RunReport& r) { return r.*share ? std::optional(100 * *(r.*share)) : std::nullopt; };
}

}  // namespace

std::vector<LineChart> loss_charts(const Entries& entries) {
  const auto reports = reports_of(entries);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto add = [&](const std::string& name, const Value& value, bool dashed) {
      lines.push_back({name, reports[i].data(), reports[i].size(), value, dashed});
    };
    const bool alone = entries.size() == 1;
    add(
        alone ? "training loss" : entries[i].label, [](const RunReport& r) { return std::optional(r.loss); },
        false);
    if (alone)
      add(
          "test loss", [](const RunReport& r) { return r.test_loss; }, true);
  }
  LineChart frame;
  frame.title = "Loss";
  frame.y_label = "loss";
  frame.log_y = true;
  return views(frame, lines);
}

std::vector<LineChart> accuracy_charts(const Entries& entries) {
  const auto reports = reports_of(entries);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto add = [&](const std::string& name, std::optional<double> RunReport::*share, bool dashed) {
      lines.push_back({name, reports[i].data(), reports[i].size(), percent(share), dashed});
    };
    const bool alone = entries.size() == 1;
    add(alone ? "mean model, all test data" : entries[i].label, &RunReport::test_accuracy, false);
    if (!alone) continue;
    // Both models were evaluated on the same samples.
    if (std::ranges::any_of(reports[i], [](const RunReport& r) { return r.local_mean_accuracy.has_value(); }))
      add("mean model, the samples of the workers'", &RunReport::local_mean_accuracy, true);
    add("workers' own models, mean", &RunReport::local_accuracy, true);
    add("the best worker's", &RunReport::local_accuracy_most, true);
    add("the worst worker's", &RunReport::local_accuracy_least, true);
  }
  LineChart frame;
  frame.title = "Test accuracy";
  frame.y_label = "%";
  frame.markers = true;
  return views(frame, lines);
}

std::vector<LineChart> distance_charts(const Entries& entries) {
  const auto reports = reports_of(entries);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < entries.size(); ++i)
    lines.push_back({entries[i].label, reports[i].data(), reports[i].size(), [](const RunReport& r) {
                       return r.consensus_distance > 0 ? std::optional(r.consensus_distance) : std::nullopt;
                     }});
  LineChart frame;
  frame.title = "Consensus distance";
  frame.y_label = "distance to the mean model";
  frame.log_y = true;
  return views(frame, lines);
}

BarChart time_chart(const Entries& entries) {
  BarChart chart;
  chart.title = "Seconds of training, mean over the workers";
  chart.x_label = "seconds";
  chart.parts = {{"computing"}, {"waiting"}, {"combining"}};
  for (const RunTask::Member& entry : entries) {
    const auto reports = entry.cell->mean_reports();
    const RunReport last = reports.empty() ? RunReport() : reports.back();
    chart.rows.push_back(entry.label);
    chart.parts[0].values.push_back(last.computing);
    chart.parts[1].values.push_back(last.waiting);
    chart.parts[2].values.push_back(last.combining);
  }
  return chart;
}

}  // namespace starling::report

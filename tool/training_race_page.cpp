#include <cmath>
#include <fmt/format.h>

#include "starling/report/page.h"
#include "starling/version.h"
#include "tool/topology_pictures.h"
#include "tool/training_race.h"

namespace starling::tool {
namespace {

using Value = double (*)(const TrainingPoint&);

struct Against {
  const char* label;
  Value x;
};

constexpr Against kAgainst[] = {
    {"steps", [](const TrainingPoint& point) { return static_cast<double>(point.step); }},
    {"bytes sent", [](const TrainingPoint& point) { return point.bytes; }},
    {"modeled seconds", [](const TrainingPoint& point) { return point.seconds; }},
};

// One view per x axis; leaves out views in which x does not change (a single node sends nothing).
std::vector<LineChart> views(const TrainingRace& race, const std::string& title, Value y) {
  std::vector<LineChart> charts;
  for (const Against& against : kAgainst) {
    LineChart chart;
    chart.title = title + " against " + against.label;
    chart.x_label = against.label;
    chart.y_label = title;
    chart.log_y = true;
    bool moves = false;
    for (const RaceRun& run : race.runs) {
      Series series{run.label()};
      for (const TrainingPoint& point : run.result.curve) {
        if (!std::isfinite(y(point))) continue;
        series.x.push_back(against.x(point));
        series.y.push_back(y(point));
      }
      moves = moves || (!series.x.empty() && series.x.back() > 0);
      // even an empty series, so that colors are the same in all charts
      chart.series.push_back(std::move(series));
    }
    if (moves) charts.push_back(std::move(chart));
  }
  return charts;
}

// Leaves out charts without points, of runs that diverged at once or never began.
void add_charts(Page& page, const TrainingRace& race, const std::string& title, Value y) {
  const auto charts = views(race, title, y);
  if (!charts.empty()) page.charts(title, charts);
}

bool all_zero(const TrainingRace& race, Value y) {
  for (const RaceRun& run : race.runs)
    for (const TrainingPoint& point : run.result.curve)
      if (y(point) != 0) return false;
  return true;
}

}  // namespace

std::string race_page(const TrainingRace& race, const std::string& command, const std::string& date) {
  const TrainingOptions& options = race.options;
  Page page("Simulated training",
            fmt::format("{} on {} node{}", race.problem, race.n, race.n == 1 ? "" : "s"));
  page.facts({{"nodes", std::to_string(race.n)},
              {"parameters", std::to_string(race.dim)},
              {"steps", std::to_string(options.steps)},
              {"optimizer", fmt::format("{}, lr {}", options.optimizer, compact(options.lr))},
              {"precision", name(options.precision)},
              {"messages lost", fmt::format("{} %", compact(100 * options.drop))},
              {"machines", race.time_file.empty() ? "default" : race.time_file},
              {"seed", race.seeds == 1 ? std::to_string(options.seed)
                                       : fmt::format("{} and {} more", options.seed, race.seeds - 1)}});
  const std::string what = race.least_known ? "Optimality gap" : "Value";
  const Value gap = [](const TrainingPoint& point) { return point.gap; };
  const Value gradient = [](const TrainingPoint& point) { return point.gradient_norm; };
  const Value consensus = [](const TrainingPoint& point) { return point.consensus; };
  page.section("How well")
      .paragraph(
          "The nodes minimize the mean of their functions. Shown is the mean of their models: its value, "
          "above the "
          "least where that is known, and the norm of the gradient there.");
  add_charts(page, race, what, gap);
  add_charts(page, race, "Gradient norm", gradient);
  if (!all_zero(race, consensus)) {
    page.section("Consensus")
        .paragraph("The root mean square distance of the nodes' models from their mean.");
    add_charts(page, race, "Consensus distance", consensus);
  }
  const Value distance = [](const TrainingPoint& point) { return point.distance; };
  if (!all_zero(race, distance)) {
    page.section("Distance to the minimum")
        .paragraph("The root mean square distance of the nodes' models from the minimizer.");
    add_charts(page, race, "Distance to the minimum", distance);
  }
  page.section("Results").table(race_table(race));
  std::vector<std::string> topologies;
  for (const RaceRun& run : race.runs) topologies.push_back(run.topology);
  const auto pictures = topology_pictures(topologies, options.seed);
  if (!pictures.empty()) page.section("Topologies").pictures(pictures);
  return page.html({command, STARLING_VERSION, date});
}

}  // namespace starling::tool

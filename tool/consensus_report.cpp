#include "tool/consensus_report.h"

#include <fmt/format.h>

#include "starling/report/number_text.h"
#include "starling/report/page.h"
#include "starling/version.h"
#include "tool/topology_pictures.h"

namespace starling::tool {
namespace {

LineChart error_chart(const std::string& title, const std::string& x_label,
                      const std::vector<ConsensusResult>& results, const std::vector<std::string>& names,
                      double tolerance, bool against_messages) {
  LineChart chart;
  chart.title = title;
  chart.x_label = x_label;
  chart.y_label = "consensus error";
  chart.log_x = true;
  chart.log_y = true;
  chart.y_floor = tolerance / 10;  // exact averages end at rounding noise, which is not interesting
  for (std::size_t i = 0; i < results.size(); ++i) {
    Series series;
    const bool run = results[i].outcome == ConsensusResult::Outcome::reached ||
                     results[i].outcome == ConsensusResult::Outcome::stopped;
    series.name = names[i] + (run ? "" : fmt::format(" ({})", to_string(results[i].outcome)));
    series.dashed = !run;
    for (const ConsensusPoint& point : results[i].curve) {
      series.x.push_back(against_messages ? point.messages / results[i].n : static_cast<double>(point.step));
      series.y.push_back(point.error);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string consensus_page(const std::vector<ConsensusResult>& results, const std::vector<std::string>& names,
                           const ConsensusOptions& options, const std::string& command,
                           const std::string& date) {
  const Rank n = results.front().n;
  Page page("Average consensus",
            fmt::format("{}: random values are averaged until all agree", counted(n, "rank")));
  page.facts({{"ranks", std::to_string(n)},
              {"values per rank", std::to_string(options.dim)},
              {"tolerance", compact(options.tolerance)},
              {"seed", std::to_string(options.seed)}});
  page.section("Error against steps");
  page.paragraph(
      "Every rank starts with random normal values. In each step it mixes its values with those that a few "
      "neighbors sent. "
      "The error is the distance to the true mean, relative to the start.");
  page.chart(error_chart("Error after each step", "steps", results, names, options.tolerance, false));
  page.section("Error against messages");
  page.paragraph("The same runs by their cost: messages of one model's size that each rank sent.");
  page.chart(
      error_chart("Error after each message", "messages per rank", results, names, options.tolerance, true));
  page.section("Results").table(consensus_table(results, names, options));
  const auto pictures = topology_pictures(names, options.seed);
  if (!pictures.empty()) page.section("Topologies").pictures(pictures);
  return page.html({command, STARLING_VERSION, date});
}

}  // namespace starling::tool

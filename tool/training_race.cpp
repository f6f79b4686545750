#include "tool/training_race.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/report/json.h"

namespace starling::tool {
namespace {

std::string short_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.2e}", value) : "diverged";
}

void write_text(JsonWriter& json, const char* key, const std::string& text) {
  json.key(key);
  if (text.empty())
    json.null();
  else
    json.value(text);
}

void write_run(JsonWriter& json, const RaceRun& run) {
  json.begin_object().member("method", run.method);
  write_text(json, "topology", run.topology);
  write_text(json, "refusal", run.refusal);
  if (!run.refusal.empty()) {
    json.end_object();
    return;
  }
  const TrainingResult& result = run.result;
  write_text(json, "schedule", result.topology);
  write_text(json, "warning", result.warning);
  const TrainingPoint& last = result.curve.back();
  json.member("gap", last.gap)
      .member("gradient_norm", last.gradient_norm)
      .member("consensus", last.consensus);
  json.member("bytes", result.bytes).member("modelled_seconds", result.modelled_seconds);
  json.member("staleness", last.staleness).member("oldest", result.oldest);
  json.member("wall_seconds", result.wall_seconds).member("gradient_seconds", result.gradient_seconds);
  json.member("mean_model", result.mean_model).key("curve").begin_array();
  for (const TrainingPoint& point : result.curve) {
    json.begin_array(JsonWriter::Layout::one_line).value(point.step);
    for (const double value :
         {point.gap, point.gradient_norm, point.consensus, point.bytes, point.seconds, point.staleness})
      json.value(value);
    json.end_array();
  }
  json.end_array().end_object();
}

}  // namespace

Table race_table(const TrainingRace& race) {
  std::vector<Column> columns = {{"method", Align::left},
                                 {"topology", Align::left},
                                 {race.least_known ? "gap" : "value", Align::right},
                                 {"gradient", Align::right},
                                 {"consensus", Align::right},
                                 {"bytes a node", Align::right},
                                 {"modelled time", Align::right},
                                 {"time here", Align::right}};
  const bool refused =
      std::ranges::any_of(race.runs, [](const RaceRun& run) { return !run.refusal.empty(); });
  if (refused) columns.emplace_back("not run because", Align::left);
  Table table(columns);
  table.title(fmt::format("{}: {} node{}, {} parameters, {} steps of {} at lr {}", race.problem, race.n,
                          race.n == 1 ? "" : "s", race.dim, race.options.steps, race.options.optimizer,
                          compact(race.options.lr)));
  for (const RaceRun& run : race.runs) {
    std::vector<std::string> cells = {run.method, run.topology.empty() ? "-" : run.topology};
    if (run.refusal.empty()) {
      const TrainingPoint& last = run.result.curve.back();
      for (const double value : {last.gap, last.gradient_norm, last.consensus})
        cells.push_back(short_number(value));
      cells.push_back(human_bytes(run.result.bytes / race.n));
      cells.push_back(human_time(run.result.modelled_seconds));
      cells.push_back(human_time(run.result.wall_seconds));
    }
    cells.resize(8, "-");
    if (refused) cells.push_back(run.refusal);
    table.row(std::move(cells));
  }
  table.footnote(race.least_known
                     ? "gap: value of the nodes' mean model above the least; gradient: its norm there."
                     : "value: of the nodes' mean model; gradient: its norm there.");
  table.footnote("consensus: root mean square distance of the nodes' models from their mean.");
  for (const RaceRun& run : race.runs)
    if (!run.result.warning.empty()) table.footnote(fmt::format("{}: {}", run.label(), run.result.warning));
  table.footnote(fmt::format(
      "modelled time: on {}; time here: of this process.",
      race.time_file.empty() ? "machines that need 1 ms a gradient, 50 µs and 10 Gbit/s" : race.time_file));
  return table;
}

void write_race(std::ostream& out, const TrainingRace& race) {
  JsonWriter json(out);
  const TrainingOptions& options = race.options;
  json.begin_object().member("n", race.n).member("dim", race.dim).member("problem", race.problem);
  json.member("optimizer", options.optimizer).member("lr", options.lr).member("steps", options.steps);
  json.member("seed", options.seed).member("precision", name(options.precision)).member("drop", options.drop);
  json.member("least_known", race.least_known).key("results").begin_array();
  for (const RaceRun& run : race.runs) write_run(json, run);
  json.end_array();
  if (race.trace) {
    json.key("trace").begin_array();
    for (const auto& step : *race.trace) json.value(step);
    json.end_array();
  }
  json.end_object();
}

}  // namespace starling::tool

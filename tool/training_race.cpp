#include "tool/training_race.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/json.h"

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

void write_run(JsonWriter& json, const RaceRun& run, const RaceRun* baseline) {
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
  if (baseline != nullptr && baseline != &run) {
    json.key("catches_up");
    const auto step = catches_up(run, *baseline);
    step ? json.value(*step) : json.null();
  }
  json.key("diverged");
  if (result.diverged)
    json.begin_object(JsonWriter::Layout::one_line)
        .member("step", result.diverged->step)
        .member("node", result.diverged->node)
        .end_object();
  else
    json.null();
  json.member("gap", last.gap)
      .member("gradient_norm", last.gradient_norm)
      .member("consensus", last.consensus)
      .member("distance", last.distance);
  json.member("bytes", result.bytes).member("modelled_seconds", result.modelled_seconds);
  json.member("staleness", last.staleness).member("oldest", result.oldest);
  json.member("wall_seconds", result.wall_seconds).member("gradient_seconds", result.gradient_seconds);
  json.member("mean_model", result.mean_model).key("curve").begin_array();
  for (const TrainingPoint& point : result.curve) {
    json.begin_array(JsonWriter::Layout::one_line).value(point.step);
    for (const double value : {point.gap, point.gradient_norm, point.consensus, point.bytes, point.seconds,
                               point.staleness, point.distance})
      json.value(value);
    json.end_array();
  }
  json.end_array().end_object();
}

// The mean over a few neighboring points, because single points are noisy.
double smoothed_distance(const std::vector<TrainingPoint>& curve, std::size_t i) {
  constexpr std::size_t kAround = 4;
  const std::size_t first = i < kAround ? 0 : i - kAround;
  const std::size_t last = std::min(curve.size() - 1, i + kAround);
  double sum = 0;
  for (std::size_t k = first; k <= last; ++k) sum += curve[k].distance * curve[k].distance;
  return sum / static_cast<double>(last - first + 1);
}

}  // namespace

TrainingResult mean_of(const std::vector<TrainingResult>& results) {
  // If the run of one seed diverged, the mean counts as diverged.
  const auto bad =
      std::ranges::find_if(results, [](const TrainingResult& one) { return one.diverged.has_value(); });
  TrainingResult mean = results.front();
  if (bad != results.end()) mean.diverged = bad->diverged;
  const double share = 1.0 / static_cast<double>(results.size());
  for (std::size_t i = 0; i < mean.curve.size(); ++i) {
    TrainingPoint& point = mean.curve[i];
    point = {.step = point.step};
    for (const TrainingResult& one : results) {
      const TrainingPoint& from = one.curve[std::min(i, one.curve.size() - 1)];
      point.gap += share * from.gap;
      point.gradient_norm += share * from.gradient_norm;
      point.consensus += share * from.consensus;
      point.distance += share * from.distance;
      point.bytes += share * from.bytes;
      point.seconds += share * from.seconds;
      point.staleness += share * from.staleness;
    }
  }
  mean.bytes = mean.curve.back().bytes;
  mean.modelled_seconds = mean.curve.back().seconds;
  mean.wall_seconds = mean.gradient_seconds = 0;
  for (const TrainingResult& one : results) {
    mean.wall_seconds += share * one.wall_seconds;
    mean.gradient_seconds += share * one.gradient_seconds;
    mean.oldest = std::max(mean.oldest, one.oldest);
  }
  return mean;
}

const RaceRun* baseline_of(const TrainingRace& race) {
  const auto found =
      std::ranges::find_if(race.runs, [](const RaceRun& run) { return run.method == "allreduce"; });
  return race.runs.size() > 1 && found != race.runs.end() && found->refusal.empty() ? &*found : nullptr;
}

std::optional<Step> catches_up(const RaceRun& run, const RaceRun& baseline) {
  constexpr double kNear = 1.1;
  const auto& curve = run.result.curve;
  const auto& best = baseline.result.curve;
  std::optional<Step> since;
  for (std::size_t i = 0; i < std::min(curve.size(), best.size()); ++i) {
    if (!(smoothed_distance(curve, i) <= kNear * smoothed_distance(best, i)))
      since.reset();
    else if (!since)
      since = curve[i].step;
  }
  return since;
}

Table race_table(const TrainingRace& race) {
  std::vector<Column> columns = {{"method", Align::left},
                                 {"topology", Align::left},
                                 {race.least_known ? "gap" : "value", Align::right},
                                 {"gradient", Align::right},
                                 {"consensus", Align::right},
                                 {"bytes a node", Align::right},
                                 {"modeled time", Align::right},
                                 {"time here", Align::right}};
  const RaceRun* baseline = race.least_known ? baseline_of(race) : nullptr;
  if (baseline != nullptr) columns.insert(columns.begin() + 3, {"catches up", Align::right});
  const std::size_t width = columns.size();
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
      cells.push_back(run.result.diverged ? "diverged" : short_number(last.gap));
      if (baseline != nullptr) {
        const auto step = &run == baseline ? std::nullopt : catches_up(run, *baseline);
        cells.push_back(&run == baseline ? "-" : step ? std::to_string(*step) : "never");
      }
      for (const double value : {last.gradient_norm, last.consensus}) cells.push_back(short_number(value));
      cells.push_back(human_bytes(run.result.bytes / race.n));
      cells.push_back(human_time(run.result.modelled_seconds));
      cells.push_back(human_time(run.result.wall_seconds));
    }
    cells.resize(width, "-");
    if (refused) cells.push_back(run.refusal);
    table.row(std::move(cells));
  }
  table.footnote(race.least_known
                     ? "gap: value of the nodes' mean model above the least; gradient: its norm there."
                     : "value: of the nodes' mean model; gradient: its norm there.");
  if (baseline != nullptr)
    table.footnote(
        "catches up: transient iterations: the step from which on the nodes' mean square distance to the "
        "minimum stays within 10 % of allreduce's.");
  if (race.seeds > 1)
    table.footnote(fmt::format("Means over {} seeds, each with data of its own.", race.seeds));
  table.footnote("consensus: root mean square distance of the nodes' models from their mean.");
  for (const RaceRun& run : race.runs)
    if (run.result.diverged)
      table.footnote(
          fmt::format("{}: diverged: {}, and it was ended there.", run.label(), run.result.diverged->text()));
  for (const RaceRun& run : race.runs)
    if (!run.result.warning.empty()) table.footnote(fmt::format("{}: {}", run.label(), run.result.warning));
  table.footnote(fmt::format(
      "modeled time: on {}; time here: of this process.",
      race.time_file.empty() ? "machines that need 1 ms a gradient, 50 µs and 10 Gbit/s" : race.time_file));
  return table;
}

void write_race(std::ostream& out, const TrainingRace& race) {
  JsonWriter json(out);
  const TrainingOptions& options = race.options;
  json.begin_object().member("n", race.n).member("dim", race.dim).member("problem", race.problem);
  json.member("optimizer", options.optimizer)
      .member("lr", options.lr)
      .member("decay", options.decay)
      .member("decay_every", options.decay_every)
      .member("steps", options.steps);
  json.member("seed", options.seed)
      .member("seeds", race.seeds)
      .member("precision", name(options.precision))
      .member("drop", options.drop);
  json.member("least_known", race.least_known).key("results").begin_array();
  for (const RaceRun& run : race.runs) write_run(json, run, baseline_of(race));
  json.end_array();
  if (race.trace) {
    json.key("trace").begin_array();
    for (const auto& step : *race.trace) json.value(step);
    json.end_array();
  }
  json.end_object();
}

}  // namespace starling::tool

#include "starling/report/training_tables.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/report/number_text.h"

namespace starling::report {
namespace {

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f} %", 100 * *share) : "-";
}

std::string rate_text(const std::optional<double>& rate) {
  return rate ? compact(*rate) : "-";
}

// "3", or "3 (1 diverged)".
std::string runs_text(const RunCell& cell) {
  std::string odd;
  for (const RunOutcome outcome : {RunOutcome::diverged, RunOutcome::unfinished})
    if (const std::size_t count = cell.ended(outcome); count > 0)
      odd += fmt::format("{}{} {}", odd.empty() ? "" : ", ", count, to_string(outcome));
  return odd.empty() ? std::to_string(cell.runs.size()) : fmt::format("{} ({})", cell.runs.size(), odd);
}

// The mean over the runs of a value in their last reports.
template <typename Value>
std::optional<double> last_mean(const RunCell& cell, const Value& value) {
  double sum = 0;
  for (const RunLog* run : cell.runs) {
    if (run->reports.empty()) return std::nullopt;
    sum += value(run->reports.back());
  }
  return sum / static_cast<double>(cell.runs.size());
}

std::optional<double> evaluated_mean(const RunCell& cell, std::optional<double> RunReport::*share) {
  double sum = 0;
  for (const RunLog* run : cell.runs) {
    const RunReport* report = run->last_evaluation();
    if (report == nullptr || !(report->*share)) return std::nullopt;
    sum += *(report->*share);
  }
  return sum / static_cast<double>(cell.runs.size());
}

}  // namespace

std::string accuracy_text(const RunCell& cell) {
  if (!cell.mean) return "-";
  return cell.deviation ? fmt::format("{:.2f} ± {:.2f} %", 100 * *cell.mean, 100 * *cell.deviation)
                        : percent(cell.mean);
}

Table training_table(const RunTask& task) {
  const auto entries = task.entries();
  const bool rates = std::any_of(entries.begin(), entries.end(), [](const RunTask::Member& entry) {
    return entry.cell->learning_rate.has_value();
  });
  const bool repeated = std::any_of(entries.begin(), entries.end(),
                                    [](const RunTask::Member& entry) { return entry.cell->runs.size() > 1; });
  std::vector<Column> columns;
  for (const std::string& name : task.distinct) columns.emplace_back(name);
  if (rates) columns.emplace_back("lr", Align::right);
  for (const char* name :
       {"test accuracy", "own models", "mean, same samples", "time", "bytes sent", "waiting", "distance"})
    columns.emplace_back(name, Align::right);
  const bool stale = std::any_of(entries.begin(), entries.end(), [](const RunTask::Member& entry) {
    return last_mean(*entry.cell, [](const RunReport& r) { return r.staleness_most; }).value_or(0) > 0;
  });
  if (stale) columns.emplace_back("staleness", Align::right);
  columns.emplace_back("runs", Align::right);
  Table table(columns);
  table.title(task.name);
  for (const RunTask::Member& entry : entries) {
    const RunCell& cell = *entry.cell;
    const auto text = [&](const auto& value, const auto& words) {
      const auto mean = last_mean(cell, value);
      return mean ? words(*mean) : std::string("-");
    };
    std::vector<std::string> row = entry.group->distinct;
    if (rates) row.push_back(rate_text(cell.learning_rate));
    row.push_back(accuracy_text(cell));
    row.push_back(percent(evaluated_mean(cell, &RunReport::local_accuracy)));
    row.push_back(percent(evaluated_mean(cell, &RunReport::local_mean_accuracy)));
    row.push_back(text([](const RunReport& r) { return r.seconds; }, human_time));
    row.push_back(text([](const RunReport& r) { return static_cast<double>(r.bytes_sent); }, human_bytes));
    row.push_back(text([](const RunReport& r) { return r.seconds > 0 ? r.waiting / r.seconds : 0; },
                       [](double x) { return fmt::format("{:.1f} %", 100 * x); }));
    row.push_back(text([](const RunReport& r) { return r.consensus_distance; },
                       [](double x) { return compact(x, 2); }));
    if (stale)
      row.push_back(fmt::format(
          "{} / {}",
          text([](const RunReport& r) { return r.staleness; }, [](double x) { return compact(x, 2); }),
          text([](const RunReport& r) { return r.staleness_most; }, [](double x) { return compact(x, 3); })));
    row.push_back(runs_text(cell));
    table.row(row);
  }
  if (stale)
    table.footnote("staleness: age in steps of the models that a worker used of others, mean and maximum.");
  table.footnote(
      "test accuracy: of the mean model on all test data, in the last evaluation; own models: the workers' "
      "own, "
      "their mean, on the first --local-test samples; mean, same samples: the mean model, on the same "
      "samples.");
  table.footnote(
      "time, bytes sent (by all workers), waiting (share of time) and consensus distance: as of the "
      "last "
      "report.");
  if (repeated)
    table.footnote(
        "± is the sample standard deviation over runs that differ by their seeds; other columns are means.");
  if (task.compares_learning_rates() && task.groups.size() > 1) table.footnote(learning_rate_rule());
  return table;
}

Table learning_rate_table(const RunTask& task) {
  std::vector<Column> columns;
  for (const std::string& name : task.distinct) columns.emplace_back(name);
  columns.emplace_back("lr", Align::right);
  columns.emplace_back("test accuracy", Align::right);
  columns.emplace_back("runs", Align::right);
  columns.emplace_back("chosen");
  Table table(columns);
  for (const RunGroup& group : task.groups) {
    table.rule();
    for (const RunCell& cell : group.cells) {
      std::vector<std::string> row = group.distinct;
      for (std::string text : {rate_text(cell.learning_rate), accuracy_text(cell), runs_text(cell),
                               std::string(&cell == &group.best() ? "yes" : "")})
        row.push_back(std::move(text));
      table.row(row);
    }
  }
  return table;
}

Table run_table(const std::vector<RunLog>& runs) {
  Table table({{"log", Align::left},
               {"seed", Align::right},
               {"lr", Align::right},
               {"test accuracy", Align::right},
               {"end", Align::left},
               {"command", Align::left}});
  for (const RunLog& run : runs) {
    std::string end = to_string(outcome_of(run));
    if (!run.resumes.empty()) end += fmt::format(", resumed {}x", run.resumes.size());
    if (!run.lost.empty()) end += fmt::format(", {} died", run.lost.size());
    table.row({run.path, run.header.setting("seed"), rate_text(run.header.learning_rate()),
               percent(final_accuracy(run)), end, run.header.command});
  }
  return table;
}

Table settings_table(const std::vector<RunLog>& runs) {
  Table table({{"", Align::left}, {"", Align::left}});
  const auto add = [&](const std::string& name, const auto& value_of) {
    std::vector<std::string> values;
    for (const RunLog& run : runs)
      if (const std::string value = value_of(run);
          std::find(values.begin(), values.end(), value) == values.end())
        values.push_back(value);
    constexpr std::size_t kMost = 12;
    if (values.size() > kMost) values = {fmt::format("{} values", values.size())};
    std::string text;
    for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
    if (!text.empty()) table.row({name, text});
  };
  std::vector<std::string> names;
  for (const RunLog& run : runs)
    for (const RunSetting& setting : run.header.experiment)
      if (std::find(names.begin(), names.end(), setting.name) == names.end()) names.push_back(setting.name);
  for (const std::string& name : names)
    add(name, [&](const RunLog& run) { return run.header.setting(name); });
  table.rule();
  add("workers", [](const RunLog& run) { return std::to_string(run.header.workers); });
  add("parameters", [](const RunLog& run) {
    return run.header.parameters > 0 ? std::to_string(run.header.parameters) : std::string();
  });
  add("starling", [](const RunLog& run) { return run.header.starling; });
  add("torch", [](const RunLog& run) { return run.header.torch; });
  add("machine", [](const RunLog& run) { return run.header.machine; });
  add("device", [](const RunLog& run) { return run.header.device; });
  add("date", [](const RunLog& run) { return run.header.date; });
  return table;
}

std::string learning_rate_rule() {
  return "lr: of the learning rates that were tried, the one with the best mean final test accuracy over its "
         "runs; of equal ones the larger. A run that diverged counts with 0 here, and a learning rate with "
         "which all diverged is chosen only where no other is left; a run that did not finish counts with "
         "its "
         "last accuracy, and with 0 if it never had one.";
}

}  // namespace starling::report

#include "starling/report/run_groups.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>

#include "starling/report/number_text.h"

namespace starling::report {
namespace {

bool diverged(const RunLog& run) {
  if (run.end && run.end->diverged) return true;
  if (run.reports.empty()) return false;
  const RunReport* evaluation = run.last_evaluation();
  return !std::isfinite(run.reports.back().loss) ||
         (evaluation != nullptr && !std::isfinite(*evaluation->test_accuracy));
}

void measure(RunCell& cell) {
  std::vector<double> values;
  bool any = false;
  for (const RunLog* run : cell.runs) {
    const auto accuracy = final_accuracy(*run);
    any = any || accuracy;
    values.push_back(accuracy.value_or(0));
  }
  if (!any) return;
  const double count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / count;
  cell.mean = mean;
  if (values.size() < 2) return;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  cell.deviation = std::sqrt(squares / (count - 1));
}

void choose(RunGroup& group) {
  const auto by_rate = [](const RunCell& a, const RunCell& b) { return a.learning_rate < b.learning_rate; };
  std::stable_sort(group.cells.begin(), group.cells.end(), by_rate);
  // Means of equal accuracies in another order may differ by rounding.
  for (std::size_t i = 0; i < group.cells.size(); ++i)
    if (group.cells[i].merit() + 1e-12 >= group.best().merit()) group.chosen = i;
}

std::string value_of(const std::vector<RunSetting>& settings, const std::string& name) {
  for (const RunSetting& setting : settings)
    if (setting.name == name) return setting.value;
  return "";
}

// A value such as "dsgd-awc" is clear by itself, "32" is not.
std::string worded(const std::string& name, const std::string& value) {
  const bool plain = value.find_first_not_of("0123456789.e+-") == std::string::npos;
  if (name == "workers") return value + " workers";
  return plain || value == "true" || value == "false"
             ? fmt::format("{} {}", name, value.empty() ? "-" : value)
             : value;
}

// A getter of a run's setting: as given, or in canonical form.
using SettingOf = std::string (RunHeader::*)(std::string_view name) const;

std::string task_by(const RunLog& run, SettingOf setting_of) {
  return (run.header.*setting_of)("model") + " on " + (run.header.*setting_of)("data");
}

std::vector<RunSetting> settings_by(const RunLog& run, SettingOf setting_of) {
  std::vector<RunSetting> settings;
  for (const RunSetting& setting : run.header.experiment) {
    if (setting.name == "seed") continue;
    const std::string value = (run.header.*setting_of)(setting.name);
    settings.push_back({setting.name, setting.name == "optimizer" ? without_learning_rate(value) : value});
  }
  settings.push_back({"workers", std::to_string(run.header.workers)});
  return settings;
}

// Names groups by the settings in which their keys differ, with the spelling of one run each.
void name_groups(RunTask& task, const std::vector<std::vector<RunSetting>>& keys) {
  std::vector<std::string> names;
  for (const auto& key : keys)
    for (const RunSetting& setting : key)
      if (std::find(names.begin(), names.end(), setting.name) == names.end()) names.push_back(setting.name);
  for (const std::string& name : names) {
    const auto differs = [&](const auto& key) { return value_of(key, name) != value_of(keys[0], name); };
    if (std::any_of(keys.begin(), keys.end(), differs)) task.distinct.push_back(name);
  }
  if (task.distinct.empty()) task.distinct = {"method", "topology"};
  for (RunGroup& group : task.groups) {
    const auto given = group_settings(*group.cells.front().runs.front());
    for (const std::string& name : task.distinct) {
      const std::string value = value_of(given, name);
      group.distinct.push_back(value);
      if (value.empty() && task.groups.size() == 1) continue;
      group.label += (group.label.empty() ? "" : " · ") + worded(name, value);
    }
  }
}

// Adds `from` times `share`. A value that only some runs have is unknown in their mean.
void add(RunReport& to, const RunReport& from, double share) {
  to.epoch += share * from.epoch;
  to.seconds += share * from.seconds;
  to.loss += share * from.loss;
  to.learning_rate += share * from.learning_rate;
  to.images_per_second += share * from.images_per_second;
  to.consensus_distance += share * from.consensus_distance;
  to.computing += share * from.computing;
  to.waiting += share * from.waiting;
  to.combining += share * from.combining;
  to.staleness += share * from.staleness;
  to.staleness_most = std::max(to.staleness_most, from.staleness_most);
  const auto optional = [&](std::optional<double>& sum, const std::optional<double>& value) {
    sum = sum && value ? std::optional(*sum + share * *value) : std::nullopt;
  };
  optional(to.test_accuracy, from.test_accuracy);
  optional(to.test_loss, from.test_loss);
  optional(to.local_accuracy, from.local_accuracy);
  optional(to.local_accuracy_least, from.local_accuracy_least);
  optional(to.local_accuracy_most, from.local_accuracy_most);
  optional(to.local_mean_accuracy, from.local_mean_accuracy);
}

RunReport mean_of(const std::vector<const RunReport*>& reports) {
  RunReport mean;
  mean.test_accuracy = mean.test_loss = mean.local_accuracy = 0;
  mean.local_accuracy_least = mean.local_accuracy_most = mean.local_mean_accuracy = 0;
  mean.step = reports.front()->step;
  mean.workers = reports.front()->workers;
  mean.taking_part = reports.front()->taking_part;
  const double share = 1 / static_cast<double>(reports.size());
  double bytes = 0;
  for (const RunReport* report : reports) {
    add(mean, *report, share);
    bytes += share * static_cast<double>(report->bytes_sent);
  }
  mean.bytes_sent = static_cast<std::uint64_t>(bytes);
  return mean;
}

}  // namespace

RunOutcome outcome_of(const RunLog& run) {
  if (diverged(run)) return RunOutcome::diverged;
  return run.finished() ? RunOutcome::finished : RunOutcome::unfinished;
}

std::string to_string(RunOutcome outcome) {
  return outcome == RunOutcome::finished     ? "finished"
         : outcome == RunOutcome::unfinished ? "unfinished"
                                             : "diverged";
}

std::optional<double> final_accuracy(const RunLog& run) {
  for (auto report = run.reports.rbegin(); report != run.reports.rend(); ++report)
    if (report->test_accuracy && std::isfinite(*report->test_accuracy)) return report->test_accuracy;
  return std::nullopt;
}

std::size_t RunCell::ended(RunOutcome outcome) const {
  return static_cast<std::size_t>(std::count_if(
      runs.begin(), runs.end(), [&](const RunLog* run) { return outcome_of(*run) == outcome; }));
}

double RunCell::merit() const {
  if (ended(RunOutcome::diverged) == runs.size()) return mean.value_or(0) - 3;
  if (!mean) return -1;
  double sum = 0;
  for (const RunLog* run : runs)
    if (outcome_of(*run) != RunOutcome::diverged) sum += final_accuracy(*run).value_or(0);
  return sum / static_cast<double>(runs.size());
}

std::vector<RunReport> RunCell::mean_reports() const {
  if (runs.size() == 1) return runs.front()->reports;
  std::map<Step, std::vector<const RunReport*>> by_step;
  for (const RunLog* run : runs)
    for (const RunReport& report : run->reports) by_step[report.step].push_back(&report);
  std::vector<RunReport> means;
  for (const auto& [step, reports] : by_step)
    if (reports.size() == runs.size()) means.push_back(mean_of(reports));
  return means;
}

bool RunTask::compares_learning_rates() const {
  return std::any_of(groups.begin(), groups.end(), [](const RunGroup& g) { return g.cells.size() > 1; });
}

std::vector<RunTask::Member> RunTask::entries() const {
  std::vector<Member> shown;
  if (groups.size() == 1 && groups[0].cells.size() > 1) {
    for (const RunCell& cell : groups[0].cells)
      shown.push_back(
          {cell.learning_rate ? "lr " + compact(*cell.learning_rate) : "no lr", &groups[0], &cell});
    return shown;
  }
  for (const RunGroup& group : groups) shown.push_back({group.label, &group, &group.best()});
  return shown;
}

std::vector<RunSetting> group_settings(const RunLog& run) {
  return settings_by(run, &RunHeader::setting);
}

std::vector<RunTask> group_runs(const std::vector<RunLog>& runs) {
  std::vector<RunTask> tasks;
  std::vector<std::string> task_keys;
  std::vector<std::vector<std::vector<RunSetting>>> keys;  // of each task's groups
  for (const RunLog& run : runs) {
    const std::string of_task = task_by(run, &RunHeader::canonical_setting);
    const auto t = static_cast<std::size_t>(std::ranges::find(task_keys, of_task) - task_keys.begin());
    if (t == tasks.size()) {
      tasks.push_back({task_by(run, &RunHeader::setting), {}, {}});
      task_keys.push_back(of_task);
      keys.emplace_back();
    }
    const auto key = settings_by(run, &RunHeader::canonical_setting);
    const auto g = static_cast<std::size_t>(std::ranges::find(keys[t], key) - keys[t].begin());
    if (g == keys[t].size()) {
      keys[t].push_back(key);
      tasks[t].groups.emplace_back();
    }
    auto& cells = tasks[t].groups[g].cells;
    const auto rate = run.header.learning_rate();
    auto cell =
        std::find_if(cells.begin(), cells.end(), [&](const RunCell& c) { return c.learning_rate == rate; });
    if (cell == cells.end()) cell = cells.insert(cell, RunCell{{}, rate, {}, {}});
    cell->runs.push_back(&run);
  }
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    for (RunGroup& group : tasks[t].groups) {
      for (RunCell& cell : group.cells) measure(cell);
      choose(group);
    }
    name_groups(tasks[t], keys[t]);
  }
  return tasks;
}

}  // namespace starling::report

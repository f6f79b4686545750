#include "starling/report/training_page.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "starling/base/atomic_file.h"
#include "starling/base/error.h"
#include "starling/base/median.h"
#include "starling/method/registry.h"
#include "starling/report/number_text.h"
#include "starling/report/topology_svg.h"
#include "starling/report/training_charts.h"
#include "starling/report/training_tables.h"
#include "starling/topology/registry.h"
#include "starling/version.h"

namespace starling::report {
namespace {

constexpr std::size_t kMostCurves = 24;  // more cannot be distinguished
constexpr std::size_t kMostPictures = 6;
constexpr Rank kMostDrawn = 128;  // ranks

// The median, because pauses for evaluations and checkpoints do not matter.
double usual_speed(const RunLog& run) {
  std::vector<double> speeds;
  for (const RunReport& report : run.reports) speeds.push_back(report.images_per_second);
  return median(std::move(speeds));
}

void add_facts_of_one(Page& page, const RunLog& run) {
  std::vector<Fact> facts;
  if (const auto accuracy = final_accuracy(run))
    facts.push_back({"test accuracy", fmt::format("{:.2f} %", 100 * *accuracy)});
  if (const RunReport* evaluation = run.last_evaluation(); evaluation && evaluation->test_loss)
    facts.push_back({"test loss", compact(*evaluation->test_loss, 4)});
  if (!run.reports.empty()) {
    const RunReport& last = run.reports.back();
    facts.push_back({"training loss", compact(last.loss, 4)});
    facts.push_back({"training time", human_time(last.seconds)});
    facts.push_back({"samples per second", fmt::format("{:.0f}", usual_speed(run))});
    facts.push_back({"bytes sent by all", human_bytes(static_cast<double>(last.bytes_sent))});
    facts.push_back({"steps", std::to_string(last.step)});
    if (last.workers != run.header.workers)
      facts.push_back({"workers", fmt::format("{} of {}", last.workers, run.header.workers)});
  }
  if (run.reports.empty() || run.reports.back().workers == run.header.workers)
    facts.push_back({"workers", std::to_string(run.header.workers)});
  page.facts(facts);
}

void add_story_of_one(Page& page, const RunLog& run) {
  const RunOutcome outcome = outcome_of(run);
  if (run.reports.empty()) {
    page.paragraph("The run has not reported anything yet.");
  } else if (outcome != RunOutcome::finished) {
    page.paragraph(fmt::format("{} Its last report is of step {}, epoch {}.",
                               outcome == RunOutcome::diverged ? "The run diverged: its loss is not a number."
                                                               : "The run has not finished.",
                               run.reports.back().step, compact(run.reports.back().epoch, 4)));
  }
  for (const RunResume& resume : run.resumes)
    page.paragraph(fmt::format("Resumed at step {}{}{}.", resume.step,
                               resume.date.empty() ? "" : " on " + resume.date,
                               resume.reset.empty() ? "" : "; reset: " + resume.reset));
  for (const PeerFailure& loss : run.lost)
    page.paragraph(fmt::format("Worker {} died at step {}.", loss.rank, loss.step));
}

void add_facts_of_many(Page& page, const std::vector<RunLog>& runs, const std::vector<RunTask>& tasks) {
  double seconds = 0, bytes = 0;
  std::size_t odd = 0;
  for (const RunLog& run : runs) {
    if (outcome_of(run) != RunOutcome::finished) ++odd;
    if (run.reports.empty()) continue;
    seconds += run.reports.back().seconds;
    bytes += static_cast<double>(run.reports.back().bytes_sent);
  }
  std::size_t groups = 0;
  for (const RunTask& task : tasks) groups += task.groups.size();
  std::vector<Fact> facts = {{"runs", std::to_string(runs.size())}};
  if (groups > 1) facts.push_back({"settings compared", std::to_string(groups)});
  if (odd > 0) facts.push_back({"diverged or unfinished", std::to_string(odd)});
  facts.push_back({"training time", human_time(seconds)});
  facts.push_back({"bytes sent", human_bytes(bytes)});
  page.facts(facts);
}

// The entries with the best mean accuracies, in their original order.
std::vector<RunTask::Member> drawn(const std::vector<RunTask::Member>& entries) {
  if (entries.size() <= kMostCurves) return entries;
  std::vector<RunTask::Member> best = entries;
  std::stable_sort(best.begin(), best.end(),
                   [](const auto& a, const auto& b) { return a.cell->merit() > b.cell->merit(); });
  best.resize(kMostCurves);
  std::vector<RunTask::Member> kept;
  for (const RunTask::Member& entry : entries)
    if (std::any_of(best.begin(), best.end(), [&](const auto& b) { return b.cell == entry.cell; }))
      kept.push_back(entry);
  return kept;
}

void add_charts(Page& page, const RunTask& task) {
  const auto all = task.entries();
  const auto entries = drawn(all);
  const bool means =
      std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.cell->runs.size() > 1; });
  if (all.size() > entries.size())
    page.paragraph(
        fmt::format("Curves and bars show the {} of {} with the best accuracy.", entries.size(), all.size()));
  if (means) page.paragraph("Every curve is the mean over runs that differ by their seeds.");
  const auto loss = loss_charts(entries);
  if (loss.empty()) return;
  page.charts("Loss", loss);
  const auto accuracy = accuracy_charts(entries);
  if (!accuracy.empty()) page.charts("Test accuracy of the mean model", accuracy);
  const auto distance = distance_charts(entries);
  if (distance.empty()) {
    page.paragraph("The workers' models were equal at every report: their consensus distance is 0.");
  } else {
    page.charts("Consensus distance: how far the workers' models are from their mean", distance);
  }
  page.chart(time_chart(entries));
}

// The topology that a method follows if the user asks for the run's topology; "" if it uses none.
std::string followed_topology(const RunHeader& header) {
  std::string asked = header.setting("topology");
  const std::string name = header.setting("method");
  if (asked.empty() || name.empty()) return asked;
  try {
    const MethodPtr method = make_method(name);
    MethodSetting setting;
    setting.size = header.workers;
    return method->needs_schedule() ? method->topology(asked, setting) : "";
  } catch (const InvalidArgument&) {
    return asked;  // a method of the program's own
  }
}

void add_topologies(Page& page, const std::vector<RunTask>& tasks) {
  std::set<std::pair<std::string, int>> seen;
  std::vector<Picture> pictures;
  std::vector<std::string> left_out;
  for (const RunTask& task : tasks)
    for (const RunGroup& group : task.groups) {
      const RunHeader& header = group.best().runs.front()->header;
      const std::string topology = followed_topology(header);
      if (topology.empty() || !seen.emplace(topology, header.workers).second) continue;
      const std::string caption = fmt::format("{} on {}", topology, counted(header.workers, "worker"));
      TopologySvgOptions options;
      options.max_n = kMostDrawn;
      if (seen.size() > 1) options.max_rounds = 4;
      try {
        if (pictures.size() == kMostPictures) {
          left_out.push_back(caption);
          continue;
        }
        pictures.push_back({topology_svg(*make_schedule(topology, header.workers), options), caption});
      } catch (const Error& error) {
        left_out.push_back(fmt::format("{} ({})", caption, error.what()));
      }
    }
  if (pictures.empty() && left_out.empty()) return;
  page.section("Topologies");
  if (!pictures.empty()) page.pictures(pictures);
  if (!left_out.empty()) page.paragraph("Not drawn: " + join_words(left_out, "; ") + ".");
}

void add_provenance(Page& page, const std::vector<RunLog>& runs) {
  page.section("How it was run");
  if (runs.size() == 1) {
    std::string commands = runs[0].header.command;
    for (const RunResume& resume : runs[0].resumes) commands += '\n' + resume.command;
    page.code(commands);
  }
  page.table(settings_table(runs));
  if (runs.size() > 1)
    page.folded(fmt::format("All {} runs and their commands", runs.size()), run_table(runs));
}

std::string subtitle(const std::vector<RunLog>& runs, const std::vector<RunTask>& tasks) {
  const RunHeader& header = runs.front().header;
  if (runs.size() == 1)
    return join_words(std::vector<std::string>{header.setting("method"), header.setting("topology"),
                                               counted(header.workers, "worker")},
                      " · ");
  const std::string all = counted(static_cast<std::int64_t>(runs.size()), "run");
  return tasks.size() == 1 ? all + " of " + tasks.front().name
                           : fmt::format("{} of {} tasks", all, tasks.size());
}

}  // namespace

std::string training_page(const std::vector<RunLog>& runs, const std::string& title,
                          const Provenance& provenance, const std::vector<Verdict>& verdicts) {
  if (runs.empty()) throw InvalidArgument("a page of training runs needs at least one run");
  const auto tasks = group_runs(runs);
  const std::string usual = runs.size() == 1 ? tasks.front().name : "Training runs";
  Page page(title.empty() ? usual : title, subtitle(runs, tasks));
  if (!verdicts.empty()) page.verdicts(verdicts);
  if (runs.size() == 1) {
    add_facts_of_one(page, runs.front());
    add_story_of_one(page, runs.front());
  } else {
    add_facts_of_many(page, runs, tasks);
  }
  for (const RunTask& task : tasks) {
    page.section(runs.size() == 1 ? "Training" : task.name);
    if (runs.size() > 1) {
      Table table = training_table(task);
      page.table(table.title(""));
      if (task.compares_learning_rates() && task.groups.size() > 1)
        page.folded("All learning rates", learning_rate_table(task));
    }
    add_charts(page, task);
  }
  add_topologies(page, tasks);
  add_provenance(page, runs);
  return page.html(provenance);
}

void write_training_page(const std::vector<RunLog>& runs, const std::string& title,
                         const std::filesystem::path& path, Provenance provenance,
                         const std::vector<Verdict>& verdicts) {
  if (runs.empty()) throw InvalidArgument("a page of training runs needs at least one run");
  const RunHeader& header = runs.front().header;
  if (provenance.command.empty()) provenance.command = header.command;
  if (provenance.version.empty()) provenance.version = STARLING_VERSION;
  if (provenance.date.empty()) provenance.date = header.date;
  const std::string html = training_page(runs, title, provenance, verdicts);
  write_atomically(path, {reinterpret_cast<const std::uint8_t*>(html.data()), html.size()});
}

}  // namespace starling::report

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <sstream>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/report/training_page.h"
#include "starling/report/training_tables.h"
#include "starling/version.h"
#include "tool/command.h"

namespace starling::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogName = "metrics.jsonl";

struct ReportOptions {
  std::vector<std::string> runs;
  std::string html = "starling-report.html";
  std::string title;
  std::string json_file;
  bool json = false;
};

// Whether a file is a run log. Logs may have any name (`starling train --report first.html` writes
// first.jsonl), and there may be other files beside them.
bool is_log(const fs::path& path) {
  if (path.filename() == kLogName) return true;
  const std::string_view wanted = R"({"kind":"run")";
  std::string begin(wanted.size(), ' ');
  return path.extension() == ".jsonl" &&
         std::ifstream(path).read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == wanted;
}

// The logs below a folder, sorted by path.
std::vector<std::string> logs_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, skip, error), end; !error && at != end;
       at.increment(error))
    if (!at->is_directory() && is_log(at->path())) found.push_back(at->path().string());
  if (error) throw Error(fmt::format("cannot search {}: {}", folder, error.message()));
  std::sort(found.begin(), found.end());
  if (found.empty())
    throw Error(fmt::format("there is no log of a run (such as {}) in {} or below it", kLogName, folder));
  return found;
}

// A log that was named twice is included once.
std::vector<std::string> logs_of(const std::vector<std::string>& runs) {
  std::vector<std::string> logs;
  for (const std::string& run : runs) {
    std::error_code ignored;
    const auto found = fs::is_directory(run, ignored) ? logs_below(run) : std::vector<std::string>{run};
    for (const std::string& log : found) {
      const auto same = [&](const std::string& other) { return fs::equivalent(log, other, ignored); };
      if (std::none_of(logs.begin(), logs.end(), same)) logs.push_back(log);
    }
  }
  return logs;
}

// For `--json a/metrics.jsonl b/metrics.jsonl`, which names a log as the output file.
void refuse_log(const std::string& option, const std::string& path) {
  if (fs::path(path).extension() == ".jsonl")
    throw InvalidArgument(
        fmt::format("{} would write over {}, whose name looks like a run log's; name the runs first, then {} "
                    "and its file",
                    option, path, option));
}

void write_value(JsonWriter& json, std::string_view key, const std::optional<double>& value) {
  json.key(key);
  value ? json.value(*value) : json.null();
}

void write_run(JsonWriter& json, const RunLog& run) {
  json.begin_object().member("log", run.path).member("seed", run.header.setting("seed"));
  json.member("outcome", to_string(outcome_of(run)));
  write_value(json, "test_accuracy", final_accuracy(run));
  const RunReport* evaluation = run.last_evaluation();
  write_value(json, "test_loss", evaluation != nullptr ? evaluation->test_loss : std::nullopt);
  write_value(json, "local_accuracy", evaluation != nullptr ? evaluation->local_accuracy : std::nullopt);
  write_value(json, "local_mean_accuracy",
              evaluation != nullptr ? evaluation->local_mean_accuracy : std::nullopt);
  if (!run.reports.empty()) {
    const RunReport& last = run.reports.back();
    json.member("step", last.step).member("epoch", last.epoch).member("seconds", last.seconds);
    json.member("loss", last.loss).member("bytes_sent", last.bytes_sent);
    json.member("computing", last.computing)
        .member("waiting", last.waiting)
        .member("combining", last.combining);
    json.member("consensus_distance", last.consensus_distance).member("workers", last.workers);
  }
  json.member("resumed", run.resumes.size()).member("lost", run.lost.size());
  json.member("command", run.header.command).end_object();
}

void write_group(JsonWriter& json, const RunGroup& group) {
  json.begin_object().member("label", group.label).key("settings").begin_object();
  for (const RunSetting& setting : group_settings(*group.cells.front().runs.front()))
    json.member(setting.name, setting.value);
  json.end_object().key("learning_rates").begin_array();
  for (const RunCell& cell : group.cells) {
    json.begin_object();
    write_value(json, "lr", cell.learning_rate);
    json.member("chosen", &cell == &group.best());
    write_value(json, "mean_accuracy", cell.mean);
    write_value(json, "deviation", cell.deviation);
    json.key("runs").begin_array();
    for (const RunLog* run : cell.runs) write_run(json, *run);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void write_json(std::ostream& out, const std::vector<RunTask>& tasks) {
  JsonWriter json(out);
  json.begin_object().key("tasks").begin_array();
  for (const RunTask& task : tasks) {
    json.begin_object().member("name", task.name).key("groups").begin_array();
    for (const RunGroup& group : task.groups) write_group(json, group);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void run(const ReportOptions& options) {
  refuse_log("--html", options.html);
  refuse_log("--json", options.json_file);
  std::vector<RunLog> runs;
  for (const std::string& log : logs_of(options.runs)) runs.push_back(read_run_log(log));
  for (const RunLog& log : runs)
    if (log.cut_off)
      std::cerr << fmt::format("starling: the last line of {} is cut off and left out\n", log.path);
  check_writable(options.html);
  if (!options.json_file.empty()) check_writable(options.json_file);
  write_training_page(runs, options.title, options.html, {command_line(), STARLING_VERSION, today()});
  const auto tasks = group_runs(runs);
  if (!options.json_file.empty()) {
    std::ostringstream text;
    write_json(text, tasks);
    write_file(options.json_file, text.str());
  }
  if (options.json && options.json_file.empty()) {
    write_json(std::cout, tasks);
    return;
  }
  for (const RunTask& task : tasks) std::cout << training_table(task).text(color_wanted()) << '\n';
  std::cout << "report: " << options.html << '\n';
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand("report", "Training runs as a table and a page, from their logs");
  command
      ->add_option("RUN", options->runs,
                   "logs of runs, such as metrics.jsonl, or folders in which to look for them at any depth")
      ->required();
  command->add_option("--html", options->html, "write the HTML report to FILE")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--title", options->title, "title of the report (default: made from the runs)");
  CLI::Option* json =
      command->add_option("--json", options->json_file, "print JSON, or write it to FILE beside the table")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->footer(
      "Runs that differ by their seeds only are averaged; of several learning rates the best is shown.\n\n"
      "Examples:\n  starling report runs/ring/metrics.jsonl\n  starling report sweep --html sweep.html "
      "--json");
  command->callback([options, json] {
    options->json = json->count() > 0;
    run(*options);
  });
}

}  // namespace starling::tool

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "starling/base/error.h"
#include "starling/base/os/program.h"
#include "starling/launch/cpus.h"
#include "starling/report/number_text.h"
#include "starling/report/training_page.h"
#include "starling/report/training_tables.h"
#include "starling/version.h"
#include "tool/load.h"
#include "tool/program.h"
#include "tool/progress.h"
#include "tool/torch/command.h"
#include "tool/torch/needed_data.h"
#include "tool/torch/sweep_plan.h"
#include "tool/torch/train_settings.h"

namespace starling::tool {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct SweepOptions {
  std::string config;
  std::string out = "starling-sweep";
  int at_once = 0;
  bool list = false;
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // from the command line
};

bool finished(const fs::path& metrics) {
  try {
    return fs::exists(metrics) && read_run_log(metrics.string()).finished();
  } catch (const Error&) {
    return false;  // it will be trained again
  }
}

/// Trains the runs that are missing, several at a time.
class Sweep {
 public:
  Sweep(std::vector<SweepRun> runs, const SweepOptions& options)
      : runs_(std::move(runs)), out_(options.out), cpus_(launch::allowed_cpus()) {
    at_once_ = options.at_once > 0 ? static_cast<std::size_t>(options.at_once) : cpus_.size();
  }

  void run() {
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (!finished(metrics(runs_[i]))) open_.push_back(i);
    std::cout << fmt::format("{} runs ({} already done), {} at a time\n", runs_.size(),
                             runs_.size() - open_.size(),
                             std::min(at_once_, std::max<std::size_t>(1, open_.size())))
              << std::flush;
    begin_ = Clock::now();
    std::vector<std::jthread> threads;
    for (std::size_t place = 0; place < std::min(at_once_, open_.size()); ++place)
      threads.emplace_back([this, place] { work(place); });
    threads.clear();
    progress_.clear();
  }

  std::vector<RunLog> logs() const {
    std::vector<RunLog> all;
    for (const SweepRun& run : runs_)
      if (finished(metrics(run))) all.push_back(read_run_log(metrics(run).string()));
    return all;
  }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  fs::path metrics(const SweepRun& run) const { return out_ / "runs" / run.folder() / "metrics.jsonl"; }

  void work(std::size_t place) {
    for (std::size_t next = next_++; next < open_.size(); next = next_++) {
      const SweepRun& run = runs_[open_[next]];
      const std::string failure = train(run, place);
      const std::lock_guard lock(mutex_);
      ++done_;
      if (!failure.empty()) failures_.push_back(fmt::format("{}: {}", describe(run), failure));
      tell(run, failure);
    }
  }

  // Each run gets one core, or its share of the cores.
  std::vector<int> cpus_of(std::size_t place) const {
    if (at_once_ > cpus_.size()) return cpus_;
    return launch::share_of_cpus(cpus_, static_cast<Rank>(place), static_cast<Rank>(at_once_));
  }

  std::string train(const SweepRun& run, std::size_t place) const {
    fs::create_directories(metrics(run).parent_path());
    std::vector<std::string> words = {own_path(), "train"};
    const std::vector<std::string> arguments = run.arguments();
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.push_back("--metrics=" + metrics(run).string());
    const ProgramRun ended = run_program(words, std::chrono::hours(24 * 30), cpus_of(place));
    write_file((metrics(run).parent_path() / "output.txt").string(), ended.out + ended.err);
    if (finished(metrics(run))) return {};
    if (ended.err.empty()) return fmt::format("{}, without an error message", ended.ending.text());
    const std::string said = ended.err.substr(0, ended.err.find('\n'));
    const std::string us = "starling: ";
    return said.rfind(us, 0) == 0 ? said.substr(us.size()) : said;
  }

  void tell(const SweepRun& run, const std::string& failure) {
    const double took = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double left = took / static_cast<double>(done_) * static_cast<double>(open_.size() - done_);
    std::string result = failure.empty() ? "" : "failed";
    if (failure.empty()) {
      const RunLog log = read_run_log(metrics(run).string());
      if (log.end && log.end->diverged)
        result = "diverged: " + log.end->diverged->text();
      else if (const RunReport* end = log.last_evaluation())
        result = fmt::format("{:.2f} %", 100 * *end->test_accuracy);
    }
    progress_.clear();
    std::cout << fmt::format("{:>3}/{}  {}  {}\n", done_, open_.size(), describe(run), result) << std::flush;
    if (done_ < open_.size()) progress_.show(fmt::format("about {} left", human_time(left)));
  }

  // The settings that differ between runs.
  std::string describe(const SweepRun& run) const {
    std::string text;
    for (const auto& [name, value] : run.settings)
      if (std::any_of(runs_.begin(), runs_.end(), [&, key = name, mine = value](const SweepRun& other) {
            return other.setting(key) != mine;
          }))
        text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
    return text;
  }

  std::vector<SweepRun> runs_;
  fs::path out_;
  std::vector<int> cpus_;
  std::size_t at_once_;
  std::vector<std::size_t> open_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::size_t done_ = 0;
  std::vector<std::string> failures_;
  Progress progress_;
  Clock::time_point begin_{};
};

Experiment experiment_of(const SweepRun& run) {
  TrainSettings settings;
  Settings table = settings.training_table();
  for (const auto& [name, text] : run.settings) table.set(name, text, option_name(name));
  return settings.complete(table);
}

bool model_fits(const Experiment& experiment) {
  try {
    check_model(experiment);
    return true;
  } catch (const InvalidArgument&) {
    return false;  // its own run will report the problem
  }
}

// Fetches data once, instead of in every run.
void fetch_data(const std::vector<SweepRun>& runs) {
  std::set<std::string> all;
  for (const SweepRun& run : runs)
    if (const Experiment experiment = experiment_of(run); model_fits(experiment)) all.insert(experiment.data);
  for (const std::string& data : all) fetch_needed_data(data);
}

// The values of the file, replaced by those of the command line.
SweepFile read_values(const SweepOptions& options, Settings& known) {
  SweepFile file;
  if (!options.config.empty()) file = read_sweep_file(options.config, known);
  for (const auto& [name, texts] : options.values) {
    for (const std::string& text : texts) known.set(name, text, option_name(name));
    put(file.common, name, texts);
    for (SweepValues& one : file.cases)
      if (std::any_of(one.begin(), one.end(),
                      [&, key = name](const auto& value) { return value.first == key; }))
        put(one, name, texts);
  }
  return file;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot make the folder {}: {}", folder, error.message()));
}

void run(const SweepOptions& options, Settings& known) {
  const SweepFile values = read_values(options, known);
  std::vector<SweepRun> runs = plan_sweep(values.common, values.cases);
  for (const SweepRun& one : runs) {
    const Experiment experiment = experiment_of(one);
    check_names(experiment);
    check_numbers(experiment);
  }
  if (options.list) {
    for (const SweepRun& one : runs) {
      std::cout << "starling train";
      for (const std::string& word : one.arguments()) std::cout << ' ' << shell_quoted(word);
      std::cout << '\n';
    }
    return;
  }
  make_folder(options.out);
  const std::string page = (fs::path(options.out) / "report.html").string();
  check_writable(page);
  fetch_data(runs);
  Sweep sweep(std::move(runs), options);
  sweep.run();
  for (const std::string& failure : sweep.failures()) std::cerr << "starling: " << failure << '\n';
  if (!sweep.failures().empty()) exit_status() = 1;
  const std::vector<RunLog> logs = sweep.logs();
  if (logs.empty()) return;
  if (sweep.failures().empty() &&
      std::ranges::all_of(logs, [](const RunLog& log) { return outcome_of(log) == RunOutcome::diverged; }))
    exit_status() = kDivergedStatus;
  for (const RunTask& task : group_runs(logs)) std::cout << '\n' << training_table(task).text(color_wanted());
  write_training_page(logs, "", page, {command_line(), STARLING_VERSION, today()});
  std::cout << "\nOpen " << page << " in a browser.\n";
}

}  // namespace

void add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepOptions>();
  auto settings = std::make_shared<TrainSettings>();
  auto known = std::make_shared<Settings>(settings->training_table());
  CLI::App* command =
      app.add_subcommand("sweep", "Train with every combination of settings, and compare them");
  command->add_option("CONFIG", options->config,
                      "a TOML file: settings of starling train, each one or a list");
  command->add_option("--out", options->out, "folder for logs and report; re-running resumes from here")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--at-once", options->at_once, "runs at a time; 0: one per core")
      ->check(whole_number());
  command->add_flag("--list", options->list, "list the runs, do not train");
  const auto add = [&](const std::string& typed, const std::string& name) {
    return command
        ->add_option_function<std::vector<std::string>>(
            option_name(typed),
            [options, command, typed, name](const std::vector<std::string>& texts) {
              if (typed != name) say_renamed(*command, option_name(typed), option_name(name));
              options->values.emplace_back(name, texts);
            },
            known->help(name))
        ->type_name("VALUE")
        ->group("Settings of starling train, each with one value or several");
  };
  for (const std::string& name : known->names()) add(name, name);
  for (const auto& [old, name] : known->former_names()) add(old, name)->group("");  // hidden
  add_load_option(*command);
  command->footer(
      "Every method gets the same learning rates and seeds; of the learning rates, the one with the best "
      "mean\n"
      "accuracy over the seeds counts.\n\n"
      "Examples:\n"
      "  starling sweep --topology ring exponential one-peer-exponential --seed 1 2 3 --workers 8 --out "
      "mine\n"
      "  starling sweep table.toml --out table");
  command->callback([options, known, settings] { run(*options, *known); });
}

}  // namespace starling::tool

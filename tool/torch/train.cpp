#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "tool/load.h"
#include "tool/torch/command.h"
#include "tool/torch/needed_data.h"
#include "tool/torch/train_job.h"
#include "tool/torch/train_settings.h"

namespace starling::tool {
namespace {

constexpr const char* kNewest = "newest";

struct TrainOptions {
  TrainSettings train;
  Settings settings;
  std::string config;
  std::string resume;  // kNewest, or a step
  CLI::Option* resumes = nullptr;
};

// Whether starling run --restart-all restarted this job; then it resumes from what it has saved so far, not
// from the step given at its start.
bool was_restarted() {
  return environment::kRestart.is_set();
}

CheckpointOptions checkpoint_options(const TrainOptions& options) {
  CheckpointOptions chosen;
  chosen.folder = options.train.checkpoint;
  chosen.every = options.train.checkpoint_every;
  chosen.keep = options.train.keep;
  for (const char* name : {"checkpoint_every", "keep"})
    if (chosen.folder.empty() && options.settings.from(name) == Settings::From::command_line)
      throw InvalidArgument(option_name(name) + " needs --checkpoint DIR");
  const bool asked = options.resumes->count() > 0;
  if (asked && chosen.folder.empty()) throw InvalidArgument("--resume needs --checkpoint DIR to resume from");
  chosen.resume = asked || (!chosen.folder.empty() && was_restarted());
  if (asked && !was_restarted() && options.resume != kNewest) chosen.resume_step = std::stoll(options.resume);
  return chosen;
}

// A page needs the log, which is written beside it by default.
std::string metrics_file(const TrainSettings& train) {
  if (!train.metrics.empty() || train.report.empty()) return train.metrics;
  return std::filesystem::path(train.report).replace_extension(".jsonl").string();
}

Experiment read_settings(TrainOptions& options) {
  if (!options.config.empty()) options.settings.read_file(options.config);
  return options.train.complete(options.settings);
}

TrainJob job_of(TrainOptions& options) {
  TrainJob job;
  job.experiment = read_settings(options);
  job.checkpoints = checkpoint_options(options);
  job.threads = options.train.threads;
  job.processes = options.train.processes;
  job.metrics = metrics_file(options.train);
  job.report = options.train.report;
  return job;
}

void check_workers(const TrainOptions& options, Rank started) {
  if (options.settings.from("workers") == Settings::From::command_line && options.train.workers != started)
    throw InvalidArgument(
        fmt::format("--workers {}, but the launcher has started {}", options.train.workers, started));
  if (options.train.processes == "one")
    throw InvalidArgument(
        "processes = one, but a launcher has started this process for one worker; leave it out");
}

// Under a launcher, one of the workers reports wrong settings, after they have joined.
void be_launched_worker(TrainOptions& options) {
  TrainJob job;
  std::exception_ptr problem;
  try {
    job = job_of(options);
  } catch (const InvalidArgument&) {
    problem = std::current_exception();
  }
  Flock flock = join_for(job.experiment);
  be_worker(flock, job, [&] {
    if (problem) std::rethrow_exception(problem);
    check_workers(options, flock.size());
  });
}

// Reports wrong settings before workers are started, as far as possible.
void check(const TrainOptions& options, const Experiment& experiment) {
  for (const std::string& file : {options.train.report, metrics_file(options.train)})
    if (!file.empty()) check_writable(file);
  check_names(experiment);
  check_numbers(experiment);
  check_schedule(experiment, options.train.workers);
  check_model(experiment);
  fetch_needed_data(experiment.data);
}

void run(TrainOptions& options) {
  if (launched_ranks()) {
    be_launched_worker(options);
    return;
  }
  prepare_for_workers();
  const TrainJob job = job_of(options);
  check(options, job.experiment);
  check_checkpoints(job.checkpoints);
  exit_status() = start_workers(job, options.train.workers);
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command =
      app.add_subcommand("train", "Train a model on many workers, with checkpoints and reports");
  options->settings = options->train.table();
  options->settings.add_options(*command);
  command->add_option("--config", options->config, "a TOML file of these settings; the command line wins")
      ->type_name("FILE");
  options->resumes = command
                         ->add_option("--resume", options->resume,
                                      "resume from the newest checkpoint, or from the one of STEP")
                         ->expected(0, 1)
                         ->default_str(kNewest)
                         ->option_text("[STEP]")
                         ->check(CLI::Validator(
                             [](const std::string& text) {
                               std::string step = text;
                               return text == kNewest || whole_number()(step).empty()
                                          ? std::string()
                                          : text + " is neither newest nor the number of a step";
                             },
                             ""));
  add_load_option(*command);
  command->footer(
      "Alone it starts the workers itself; under starling run, mpirun or torchrun it is one of them.\n\n"
      "Examples:\n"
      "  starling train --workers 8 --epochs 3 --report out.html\n"
      "  starling train --config mnist.toml --alpha 0.1 --method gradient-tracking --lr 0.01\n"
      "  starling run -n 8 -- starling train --checkpoint saved --resume");
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <memory>

#include "starling/base/error.h"
#include "starling/data/registry.h"
#include "starling/launch/cpus.h"
#include "starling/launch/launcher.h"
#include "starling/train/worker.h"
#include "tool/bench_program.h"
#include "tool/torch/command.h"
#include "tool/torch/train_settings.h"
#include "tool/torch/train_view.h"
#include "starling/report/training_page.h"
#include "tool/worker_group.h"

namespace starling::tool {
namespace {

struct Options {
  TrainSettings train;
  Settings settings;
  std::string config;
  std::string resume;  // "newest", or a step
  CLI::Option* resumes = nullptr;
};

CheckpointOptions checkpoint_options(const Options& options) {
  CheckpointOptions chosen;
  chosen.folder = options.train.checkpoint;
  chosen.every = options.train.checkpoint_every;
  chosen.keep = options.train.keep;
  chosen.resume = options.resumes->count() > 0;
  if (chosen.resume && chosen.folder.empty()) throw InvalidArgument("--resume needs --checkpoint DIR to resume from");
  if (chosen.resume && options.resume != "newest") chosen.resume_step = std::stoll(options.resume);
  return chosen;
}

// A page needs the log, which lies beside it unless it was given a place.
std::string metrics_file(const TrainSettings& train) {
  if (!train.metrics.empty() || train.report.empty()) return train.metrics;
  return std::filesystem::path(train.report).replace_extension(".jsonl").string();
}

// One of the workers. Everybody hears what happens; the first who is alive tells it.
void be_worker(const Options& options, const Experiment& experiment) {
  const CheckpointOptions checkpoints = checkpoint_options(options);
  Flock flock = join();
  const int cores = static_cast<int>(launch::allowed_cpus().size());
  prepare_worker(options.train.threads > 0 ? options.train.threads
                                           : std::max(1, cores / static_cast<int>(flock.local_size())));
  const std::string metrics = metrics_file(options.train);
  TrainView view(experiment, metrics, checkpoints.resume);
  const auto speaks = [&] { return flock.view().members.front() == flock.rank(); };
  run_experiment(
      flock, experiment,
      [&](const RunEvent& event) {
        if (speaks()) view.show(event);
      },
      checkpoints);
  if (!options.train.report.empty() && speaks()) {
    write_training_page({read_run_log(metrics)}, "", options.train.report);
    std::cout << "Open " << options.train.report << " in a browser." << std::endl;
  }
}

// What is wrong with the settings is said once, here, before there are workers.
void check(const Options& options, const Experiment& experiment) {
  checkpoint_options(options);
  for (const std::string& file : {metrics_file(options.train), options.train.report})
    if (!file.empty()) check_writable(file);
  if (experiment.data.rfind("text:", 0) == 0) return;
  const DataSource& source = find_data_source(experiment.data);
  if (source.recipe) fetch(source, {}, [](const std::string& line) { std::cout << line << std::endl; });
}

void start_workers(const Options& options, const Experiment& experiment, const std::vector<std::string>& arguments) {
  const int cores = static_cast<int>(launch::allowed_cpus().size());
  const int workers = options.train.workers;
  launch::LaunchOptions job;
  job.ranks = workers;
  job.command = {own_path()};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.environment = training_environment(options.train.threads > 0 ? options.train.threads
                                                                    : std::max(1, cores / workers));
  job.share_output = true;
  job.stop_on_failure = experiment.on_loss != "reweight";
  const int status = launch::launch(job);
  exit_status() = status;
  if (status == 0 || job.stop_on_failure) return;
  // Who was lost is no failure of those who went on.
  const std::string metrics = metrics_file(options.train);
  if (!metrics.empty() && std::filesystem::exists(metrics) && read_run_log(metrics).finished()) exit_status() = 0;
}

void run(Options& options, const std::vector<std::string>& arguments) {
  if (!options.config.empty()) options.settings.read_file(options.config);
  const Experiment experiment = options.train.complete();
  const auto ranks = launched_ranks();
  if (!ranks) {
    check(options, experiment);
    start_workers(options, experiment, arguments);
    return;
  }
  if (options.settings.given("workers") && options.train.workers != *ranks)
    throw InvalidArgument(fmt::format("--workers {}, but the launcher has started {}", options.train.workers, *ranks));
  be_worker(options, experiment);
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model on many workers, with checkpoints and reports");
  options->settings = options->train.table();
  options->settings.add_options(*command);
  command->add_option("--config", options->config, "a TOML file of these settings; the command line wins");
  options->resumes = command
                         ->add_option("--resume", options->resume,
                                      "go on from the newest checkpoint, or from the one of this step")
                         ->expected(0, 1)
                         ->default_str("newest")
                         ->check(CLI::IsMember({"newest"}) | CLI::NonNegativeNumber);
  command->footer(
      "Alone it starts the workers itself; under starling run, mpirun or torchrun it is one of them.\n\n"
      "Examples:\n"
      "  starling train --workers 8 --epochs 3 --report out.html\n"
      "  starling train --config mnist.toml --alpha 0.1 --method gradient-tracking --lr 0.01\n"
      "  starling run -n 8 -- starling train --checkpoint saved --resume");
  command->callback([options] { run(*options, own_arguments()); });
}

}  // namespace starling::tool

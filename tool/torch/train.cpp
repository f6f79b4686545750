#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <thread>

#include "starling/base/error.h"
#include "starling/flock/errors.h"
#include "starling/launch/cpus.h"
#include "starling/launch/launcher.h"
#include "starling/report/training_page.h"
#include "starling/train/worker.h"
#include "tool/bench_program.h"
#include "tool/last_words.h"
#include "tool/torch/command.h"
#include "tool/torch/needed_data.h"
#include "tool/torch/train_settings.h"
#include "tool/torch/train_view.h"
#include "tool/worker_group.h"

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

// By starling run --restart-all: what this run has saved so far counts, not the step that it began from.
bool was_restarted() {
  return std::getenv("STARLING_RESTART") != nullptr;
}

CheckpointOptions checkpoint_options(const TrainOptions& options) {
  CheckpointOptions chosen;
  chosen.folder = options.train.checkpoint;
  chosen.every = options.train.checkpoint_every;
  chosen.keep = options.train.keep;
  const bool asked = options.resumes->count() > 0;
  if (asked && chosen.folder.empty()) throw InvalidArgument("--resume needs --checkpoint DIR to resume from");
  chosen.resume = asked || (!chosen.folder.empty() && was_restarted());
  if (asked && !was_restarted() && options.resume != kNewest) chosen.resume_step = std::stoll(options.resume);
  return chosen;
}

// A page needs the log, which lies beside it unless it was given a place.
std::string metrics_file(const TrainSettings& train) {
  if (!train.metrics.empty() || train.report.empty()) return train.metrics;
  return std::filesystem::path(train.report).replace_extension(".jsonl").string();
}

Experiment read_settings(TrainOptions& options) {
  if (!options.config.empty()) options.settings.read_file(options.config);
  return options.train.complete(options.settings);
}

// Everybody hears what happens; the first who is alive tells it.
void train(Flock& flock, TrainOptions& options) {
  const Experiment experiment = read_settings(options);
  if (options.settings.from("workers") == Settings::From::command_line &&
      options.train.workers != flock.size())
    throw InvalidArgument(
        fmt::format("--workers {}, but the launcher has started {}", options.train.workers, flock.size()));
  const CheckpointOptions checkpoints = checkpoint_options(options);
  const int cores = static_cast<int>(launch::allowed_cpus().size());
  prepare_worker(options.train.threads > 0 ? options.train.threads
                                           : std::max(1, cores / static_cast<int>(flock.local_size())));
  const std::string metrics = metrics_file(options.train);
  TrainView view(experiment, metrics, checkpoints.resume);
  const auto speaks = [&] { return flock.view().members.front() == flock.rank(); };
  bool saved = true;
  std::optional<RunDivergence> diverged;
  run_experiment(
      flock, experiment,
      [&](const RunEvent& event) {
        if (std::holds_alternative<RunNotSaved>(event)) saved = false;
        if (const auto* end = std::get_if<RunEnd>(&event)) diverged = end->diverged;
        if (speaks()) view.show(event);
      },
      checkpoints);
  if (!options.train.report.empty() && speaks()) {
    write_training_page({read_run_log(metrics)}, "", options.train.report);
    std::cout << "Open " << options.train.report << " in a browser." << std::endl;
  }
  if (!saved) {
    exit_status() = 1;
    flock.barrier();  // the first rank that ends with it ends the others
  }
  if (!diverged) return;
  if (speaks()) std::cerr << fmt::format("starling: diverged: {}", diverged->text()) << std::endl;
  // Where the first failure ends the others, who speaks still has a page to write.
  if (speaks() || experiment.on_peer_failure == "reweight") exit_status() = kDivergedStatus;
}

// What all ranks stumble over is said by one: by who started them, else by rank 0, which has to be the first
// to go, for launchers name that one.
void give_up(Rank rank, const std::exception& error) {
  exit_status() = 2;
  const bool consequence = dynamic_cast<const PeerLost*>(&error) != nullptr;
  if (leave_last_words(rank, error.what(), consequence)) return;
  const bool shared = dynamic_cast<const InvalidArgument*>(&error) != nullptr;
  if (shared && rank != 0)
    std::this_thread::sleep_for(std::chrono::seconds(2));
  else
    std::cerr << "starling: " << error.what() << std::endl;
}

// What is wrong with the settings is found again, and said, once there is a flock.
Faults faults_of(TrainOptions& options) {
  Faults faults;
  try {
    const Experiment experiment = read_settings(options);
    faults.lose = experiment.drop;
    faults.seed = experiment.seed;
  } catch (const InvalidArgument&) {
    faults = {};
  }
  return faults;
}

void be_worker(TrainOptions& options) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to be told
  Flock flock = join(faults_of(options));
  try {
    train(flock, options);
  } catch (const std::exception& error) {
    give_up(flock.rank(), error);
  }
}

// What is wrong with the settings is said here, before there are workers, as far as it can be.
void check(const TrainOptions& options, const Experiment& experiment) {
  checkpoint_options(options);
  for (const std::string& file : {options.train.report, metrics_file(options.train)})
    if (!file.empty()) check_writable(file);
  check_names(experiment);
  check_model(experiment);
  fetch_needed_data(experiment.data);
}

void start_workers(const TrainOptions& options, const Experiment& experiment) {
  const int cores = static_cast<int>(launch::allowed_cpus().size());
  const int workers = options.train.workers;
  const LastWords words;
  launch::LaunchOptions job;
  job.ranks = workers;
  job.command = {own_path()};
  job.command.insert(job.command.end(), own_arguments().begin(), own_arguments().end());
  job.environment =
      training_environment(options.train.threads > 0 ? options.train.threads : std::max(1, cores / workers));
  job.environment.push_back(words.variable());
  if (std::getenv("STARLING_LOG") == nullptr) job.environment.emplace_back("STARLING_LOG=quiet");
  job.share_output = true;
  job.continues = experiment.on_peer_failure == "reweight";
  job.after_death = "its data is redistributed at the next epoch";
  exit_status() = launch::launch(job);
  words.tell();
}

void run(TrainOptions& options) {
  if (launched_ranks()) {
    be_worker(options);
    return;
  }
  const Experiment experiment = read_settings(options);
  check(options, experiment);
  start_workers(options, experiment);
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command =
      app.add_subcommand("train", "Train a model on many workers, with checkpoints and reports");
  options->settings = options->train.table();
  options->settings.add_options(*command);
  command->add_option("--config", options->config, "a TOML file of these settings; the command line wins");
  options->resumes = command
                         ->add_option("--resume", options->resume,
                                      "go on from the newest checkpoint, or from the one of this step")
                         ->expected(0, 1)
                         ->default_str(kNewest)
                         ->option_text("[STEP]")
                         ->check(CLI::IsMember({kNewest}) | whole_number());
  command->footer(
      "Alone it starts the workers itself; under starling run, mpirun or torchrun it is one of them.\n\n"
      "Examples:\n"
      "  starling train --workers 8 --epochs 3 --report out.html\n"
      "  starling train --config mnist.toml --alpha 0.1 --method gradient-tracking --lr 0.01\n"
      "  starling run -n 8 -- starling train --checkpoint saved --resume");
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool

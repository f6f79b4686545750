#include "tool/torch/train_job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <thread>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/launcher_notice.h"
#include "starling/flock/errors.h"
#include "starling/flock/join_threads.h"
#include "starling/launch/cpus.h"
#include "starling/launch/launcher.h"
#include "starling/report/training_page.h"
#include "starling/train/worker.h"
#include "tool/torch/command.h"
#include "tool/torch/train_view.h"
#include "tool/torch/worker_threads.h"
#include "tool/worker_errors.h"
#include "tool/worker_group.h"

namespace starling::tool {
namespace {

int threads_of(const TrainJob& job, int workers) {
  const int cores = static_cast<int>(launch::allowed_cpus().size());
  return job.threads > 0 ? job.threads : std::max(1, cores / workers);
}

// Every worker receives the events; the first live one reports them.
void train(Flock& flock, const TrainJob& job) {
  const Experiment& experiment = job.experiment;
  prepare_worker(threads_of(job, static_cast<int>(flock.local_size())));
  TrainView view(job, flock.size());
  const auto speaks = [&] { return flock.view().members.front() == flock.rank(); };
  bool saved = true;
  std::optional<RunDivergence> diverged;
  run_experiment(
      flock, experiment,
      [&](const RunEvent& event) {
        if (std::holds_alternative<RunNotSaved>(event)) saved = false;
        if (const auto* end = std::get_if<RunEnd>(&event)) diverged = end->diverged;
        if (std::holds_alternative<PeerFailure>(event)) view.note_death();
        if (speaks()) view.show(event);
        if (job.on_event) job.on_event(flock, event);
      },
      job.checkpoints, job.task);
  if (!job.report.empty() && speaks()) {
    write_training_page({read_run_log(job.metrics)}, "", job.report);
    std::cout << "Open " << job.report << " in a browser." << std::endl;
  }
  if (!saved) {
    exit_status() = 1;
    flock.barrier();  // the first rank that exits with this status ends the others
  }
  if (!diverged) return;
  if (speaks()) std::cerr << fmt::format("starling: diverged: {}", diverged->text()) << std::endl;
  // If the first failure ends the others, the reporting rank still has to write the page.
  if (speaks() || experiment.on_peer_failure == "reweight") exit_status() = kDivergedStatus;
}

// One process reports an error of all ranks: the process that started them, or else rank 0, which must exit
// first, because launchers name the first.
void give_up(Rank rank, const std::exception& error) {
  exit_status() = 2;
  const bool consequence = dynamic_cast<const PeerLost*>(&error) != nullptr;
  if (report_worker_error(rank, error.what(), consequence)) return;
  const bool shared = dynamic_cast<const InvalidArgument*>(&error) != nullptr;
  if (shared && rank != 0)
    std::this_thread::sleep_for(std::chrono::seconds(2));
  else
    std::cerr << "starling: " << error.what() << std::endl;
}

Faults faults_of(const Experiment& experiment) {
  Faults faults;
  faults.lose = experiment.drop;
  faults.seed = experiment.seed;
  return faults;
}

}  // namespace

void prepare_for_workers() {
  prepare_worker(1);
}

Flock join_for(const Experiment& experiment) {
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit becomes an error instead of a signal
  // The death of a worker while the others join must not end the job either.
  if (experiment.on_peer_failure == "reweight") tell_launcher(LauncherNotice::continues_after_failure);
  return join(faults_of(experiment));
}

std::vector<Flock> join_for_threads(const Experiment& experiment, int workers) {
  std::signal(SIGXFSZ, SIG_IGN);
  return flock::join_as_threads(workers, faults_of(experiment));
}

void be_worker(Flock& flock, const TrainJob& job, const std::function<void()>& check) {
  try {
    if (check) check();
    train(flock, job);
    flush_output();
  } catch (const std::exception& error) {
    give_up(flock.rank(), error);
  }
}

int start_workers(TrainJob job, int workers) {
  const bool one_process = share_a_process(job, workers);
  TrainView::announce(job.experiment, workers, one_process);
  if (!job.task) job.task = load_task(job.experiment.data);
  const WorkerErrors errors;
  launch::LaunchOptions options;
  options.ranks = one_process ? 1 : workers;
  options.body = [&job, one_process, workers] {
    if (one_process) {
      prepare_worker(threads_of(job, workers));  // torch renews its pool after the fork, in one thread
      return run_worker_threads(job, workers);
    }
    Flock flock = join_for(job.experiment);
    be_worker(flock, job);
    return exit_status();
  };
  options.environment = training_environment(threads_of(job, workers));
  options.environment.push_back(errors.variable());
  // One queue on the device for each worker's stream, instead of 8 for all.
  if (one_process) options.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
  if (!environment::kLog.is_set()) options.environment.push_back(environment::kLog.assignment("quiet"));
  options.share_output = true;
  options.continues = job.experiment.on_peer_failure == "reweight";
  options.noun = one_process ? "worker process" : "worker";
  options.after_death = "its data is redistributed at the next epoch";
  const int status = launch::launch(options);
  errors.print();
  return status;
}

}  // namespace starling::tool

#include "tool/torch/worker_threads.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/flock/join_threads.h"
#include "starling/kernel/device.h"
#include "starling/train/worker.h"
#include "tool/command.h"

namespace starling::tool {
namespace {

// The number of GPUs that torch sees. A fork counts them, since processes that are forked after the driver
// was used cannot use it.
int count_gpus() {
  if (!kernel::may_have_device()) return 0;
  const pid_t child = fork();
  if (child == 0) _exit(std::min(train::gpus_of_torch(), 255));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// With several GPUs, workers have GPUs of their own, or share them in groups.
bool all_share_a_gpu(const std::string& device) {
  if (device == "cpu") return false;
  return device.starts_with("cuda:") ? kernel::may_have_device() : count_gpus() == 1;
}

}  // namespace

bool share_a_process(const TrainJob& job, int workers) {
  const Experiment& experiment = job.experiment;
  if (job.processes == "each") return false;
  if (job.processes == "auto")
    return workers > 1 && experiment.on_peer_failure == "raise" && !experiment.eager &&
           all_share_a_gpu(experiment.device);
  if (job.processes != "one")
    throw InvalidArgument(fmt::format("processes = {}: each, one or auto", job.processes));
  if (experiment.eager && experiment.device != "cpu")
    throw InvalidArgument(
        "--processes one with --eager: eager averages inside backward, which runs on one thread for all "
        "workers of a GPU; use --processes each, or --device cpu");
  if (experiment.on_peer_failure == "reweight")
    throw InvalidArgument(
        "--processes one with --on-peer-failure reweight: the threads of a process die together; use "
        "--processes each");
  return true;
}

int run_worker_threads(const TrainJob& job, int workers) {
  std::vector<Flock> flocks = join_for_threads(job.experiment, workers);
  std::vector<int> statuses(flocks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < flocks.size(); ++r)
      threads.emplace_back([&job, &status = statuses[r], flock = std::move(flocks[r])]() mutable {
        be_worker(flock, job);
        status = exit_status();
      });
  }
  const auto failed = std::find_if(statuses.begin(), statuses.end(), [](int status) { return status != 0; });
  return failed == statuses.end() ? 0 : *failed;
}

}  // namespace starling::tool

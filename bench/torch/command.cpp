#include "bench/torch/command.h"

#include <memory>

#include "bench/torch/worker.h"
#include "tool/torch/command.h"

namespace starling::bench {
namespace {

// Commands of child processes of this program.
void add_workers(CLI::App& app) {
  struct WorkerOptions {
    std::string work;
    int threads = 1;
  };
  auto options = std::make_shared<WorkerOptions>();
  CLI::App* worker = app.add_subcommand("worker", "one rank of a training benchmark")->group("");
  worker->add_option("work", options->work)->required();
  worker->add_option("threads", options->threads)->required();
  worker->callback([options] { be_training_worker(options->work, options->threads); });
  app.add_subcommand("operations-worker", "one rank of a benchmark of operations")->group("")->callback([] {
    be_operations_worker();
  });
}

}  // namespace

static void add_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmark communication, training, GPUs and the simulator");
  bench->require_subcommand(1);
  add_bench_training(*bench);
  add_bench_scaling(*bench);
  add_workers(app);
}

}  // namespace starling::bench

namespace starling::tool {

void add_torch_bench(CLI::App& app) {
  bench::add_command(app);
}

}  // namespace starling::tool

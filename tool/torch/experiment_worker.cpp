#include "tool/torch/experiment_worker.h"

#include <iostream>

#include <nlohmann/json.hpp>

#include "starling/train/torch_version.h"
#include "tool/bench_program.h"

namespace starling {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Experiment, data, model, method, topology, optimizer, partition, batch,
                                   epochs, warmup, cosine, seed, on_loss, reports)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, step, epoch, seconds, loss, images_per_second, consensus_distance,
                                   waiting, test_accuracy, test_loss, workers)

}  // namespace starling

namespace starling::tool {

std::vector<std::string> experiment_command(const Experiment& experiment, int threads) {
  return {own_path(), "experiment", nlohmann::json(experiment).dump(), std::to_string(threads)};
}

void be_experiment_worker(const std::string& text, int threads) {
  torch::set_num_threads(threads);
  const auto experiment = nlohmann::json::parse(text).get<Experiment>();
  Flock flock = join();
  run_experiment(flock, experiment, [&](const Report& report) {
    if (flock.rank() == 0) std::cout << nlohmann::json(report).dump() << std::endl;
  });
}

Report read_report(const std::string& line) {
  return nlohmann::json::parse(line).get<Report>();
}

}  // namespace starling::tool

#pragma once

#include <cstdlib>
#include <fmt/format.h>

#include "flock/flock_fixture.h"
#include "starling/train/device_tensors.h"
#include "starling/train/trainer.h"
#include "train/networks.h"

namespace starling::train {

/// Whether the suites train models on a (simulated) device: STARLING_TEST_FABRIC is cuda.
inline bool trains_on_device() {
  const char* fabric = std::getenv("STARLING_TEST_FABRIC");
  return fabric != nullptr && std::string_view(fabric) == "cuda";
}

/// Runs a body on every rank of a flock; "local_threads" or "local_processes".
inline std::vector<RankEnd> ends_on(const std::string& launcher, Rank size, const FlockBody& body) {
  pretend_tensors_are_on_device(trains_on_device());
  for (const Launcher& one : trains_on_device() ? inline_device_launchers() : launchers()) {
    if (one.name.substr(one.name.find('_')) != launcher.substr(launcher.find('_'))) continue;
    return one.run(size, [body](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(20s);
      body(flock);
    });
  }
  throw Error("no launcher " + launcher);
}

inline void on_ranks(Rank size, const FlockBody& body, const std::string& launcher = "local_threads") {
  const auto ends = ends_on(launcher, size, body);
  for (std::size_t r = 0; r < ends.size(); ++r)
    EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message << " signal " << ends[r].signal;
}

/// The largest difference, relative to the largest value.
inline double difference(const torch::Tensor& got, const torch::Tensor& expected) {
  if (got.sizes() != expected.sizes()) return HUGE_VAL;
  const double largest = expected.abs().max().item<double>();
  const double off = (got - expected).abs().max().item<double>();
  return std::isfinite(off) ? off / std::max(largest, 1e-30) : HUGE_VAL;
}

inline void require_close(const torch::Tensor& got, const torch::Tensor& expected, const std::string& what,
                          double tolerance = 1e-9) {
  const double off = difference(got, expected);
  require(off <= tolerance, fmt::format("{}: off by {}", what, off));
}

inline void require_equal(const torch::Tensor& got, const torch::Tensor& expected, const std::string& what) {
  require(torch::equal(got, expected), fmt::format("{}: off by {}", what, difference(got, expected)));
}

/// One training step as users write it.
inline void train_step(Trainer& trainer, Network& network, Rank rank, Step step) {
  trainer.zero_grad();
  loss_of(network, rank, step).backward();
  trainer.step();
}

/// The parameters of a float64 network after some steps.
struct Recipe {
  TrainerOptions options = {};
  std::string network = "mlp";
  std::string optimizer = "momentum";
  Step steps = 5;
  torch::Dtype type = torch::kFloat64;
};
inline torch::Tensor train(const Flock& flock, const Recipe& recipe) {
  const NetworkPtr network = make_network(recipe.network, flock.rank(), recipe.type);
  const OptimizerPtr optimizer = local_optimizer(recipe.optimizer).make(network->parameters());
  Trainer trainer(flock, *network, *optimizer, recipe.options);
  for (Step t = 0; t < recipe.steps; ++t) train_step(trainer, *network, flock.rank(), t);
  return flat_parameters(*network).clone();
}

}  // namespace starling::train

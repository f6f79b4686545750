#include <gtest/gtest.h>

#include "train/dense_training.h"
#include "train/trained.h"

// Compares the Trainer with a dense computation of the specification's equations.
namespace starling::train {
namespace {

void compare(const DenseRun& run, const TrainerOptions& given = {}) {
  const std::string label =
      fmt::format("{} on {}, n = {}, {}, {}", run.method, run.topology, run.size, run.network, run.optimizer);
  const auto expected = train_densely(run);
  on_ranks(run.size, [&](Flock& flock) {
    TrainerOptions options = given;
    options.method = run.method;
    options.topology = run.topology;
    options.broadcast_at_start = run.equal_start;
    const NetworkPtr network = make_network(run.network, flock.rank());
    const OptimizerPtr optimizer = local_optimizer(run.optimizer).make(network->parameters());
    Trainer trainer(flock, *network, *optimizer, options);
    for (Step t = 0; t < run.steps; ++t) train_step(trainer, *network, flock.rank(), t);
    // Compares the model to evaluate; for CECA that is block a, which only a flock of one calls "averaged".
    require_close(flat_parameters(*network), expected[static_cast<std::size_t>(flock.rank())], label);
  });
}

struct Setting {
  std::string method;
  std::vector<std::string> topologies;
  bool equal_start = false;
};
const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {"dsgd-awc", {"one-peer-exponential", "ring", "complete", "base(k=1)"}},
      {"dsgd-atc", {"one-peer-exponential", "star", "random-matching"}},
      {"allreduce", {"ring"}},
      {"allreduce-model", {"ring"}},
      {"parameter-server", {"ring"}, true},
      {"gradient-tracking", {"ring", "one-peer-exponential"}},
      {"push-sum", {"exponential", "fold-unfold"}},
      {"relay-sgd", {"chain", "binary-tree"}},
      {"gossip-pga(h=3)", {"ring", "one-peer-exponential"}},
      {"local-sgd(tau=2)", {"ring"}},
  };
  return all;
}

class TrainerDenseTest : public testing::TestWithParam<std::string> {};

TEST_P(TrainerDenseTest, EveryMethodMatchesItsEquations) {
  for (const Setting& setting : settings())
    for (const Rank n : {1, 2, 4})
      for (const std::string& topology : setting.topologies)
        compare({setting.method, topology, n, "mlp", GetParam(), 5, setting.equal_start});
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TrainerDenseTest, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TestOptimizer& one : local_optimizers()) names.push_back(one.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

TEST(TrainerDense, AConvolutionalNetworkInManyBucketsMatches) {
  for (const Setting& setting : settings())
    for (const char* optimizer : {"nesterov", "adam", "rmsprop"})
      compare({setting.method, setting.topologies[0], 4, "conv", optimizer, 4, setting.equal_start},
              {.bucket_mb = 1e-5});
}

TEST(TrainerDense, DecentralizedAdamVariantsMatch) {
  for (const Rank n : {1, 2, 4})
    for (const char* topology : {"one-peer-exponential", "ring"}) {
      compare({"dadam", topology, n, "mlp", "adam", 7});
      compare({"dadam", topology, n, "conv", "adamw", 7});
      for (const int s : {1, 2, 3}) {
        compare({fmt::format("accum-adam(s={})", s), topology, n, "mlp", "adam", 7});
        compare({fmt::format("accum-adamw(s={})", s), topology, n, "mlp", "adamw", 7});
      }
    }
}

TEST(TrainerDense, AccumAdamOfOneStepIsAdam) {
  on_ranks(2, [](Flock& flock) {
    const torch::Tensor accumulated =
        train(flock, {{.method = "accum-adam(s=1)", .name = "a"}, "mlp", "adam"});
    const torch::Tensor plain = train(flock, {{.method = "dadam", .name = "b"}, "mlp", "adam"});
    require_close(accumulated, plain, "s = 1", 1e-12);
  });
}

// The evaluated block is in the module; block a is averaged and saved.
TEST(TrainerDense, CecaUsesTheGradientAtTheBlockItSends) {
  for (const Rank n : {2, 4, 5, 6})
    for (const Step steps : {1, 2, 3, 4, 7}) {
      const DenseRun run{"dsgd-atc", "ceca", n, "mlp", "momentum", steps};
      const auto expected = train_densely(run);
      on_ranks(n, [&](Flock& flock) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr optimizer = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *optimizer,
                        {.method = "dsgd-atc", .topology = "ceca", .broadcast_at_start = false});
        for (Step t = 0; t < steps; ++t) train_step(trainer, *network, flock.rank(), t);
        const torch::Tensor own = flat_parameters(*network).clone();
        {
          const auto mean = trainer.global_average();
          require_close(flat_parameters(*network), torch::stack(expected).mean(0), "the mean of a");
        }
        require_equal(flat_parameters(*network), own, "reverted");
        double squares = 0;
        const torch::Tensor mean = torch::stack(expected).mean(0);
        for (const torch::Tensor& a : expected) squares += (a - mean).square().sum().item<double>();
        const double distance = std::sqrt(squares / n);
        require(std::abs(trainer.consensus_distance() - distance) <= 1e-9 * (1 + distance),
                fmt::format("n = {}, {} steps: distance {} instead of {}", n, steps,
                            trainer.consensus_distance(), distance));
      });
    }
}

// The first update is not lost, and step t uses the schedule's round t.
TEST(TrainerDense, RoundsCountFromTheFirstStep) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "gradient-tracking", "push-sum"})
    for (const Step steps : {1, 2, 3}) compare({method, "one-peer-exponential", 4, "mlp", "sgd", steps});
}

}  // namespace
}  // namespace starling::train

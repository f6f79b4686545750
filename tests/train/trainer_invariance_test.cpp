#include <gtest/gtest.h>

#include "train/trained.h"

// Settings that must not change any bit of the result.
namespace starling::train {
namespace {

const std::vector<std::pair<std::string, std::string>>& methods() {
  static const std::vector<std::pair<std::string, std::string>> all = {{"dsgd-awc", "one-peer-exponential"},
                                                                       {"dsgd-awc", "ring"},
                                                                       {"dsgd-atc", "ring"},
                                                                       {"dsgd-atc", "ceca"},
                                                                       {"allreduce", "ring"},
                                                                       {"allreduce-model", "ring"},
                                                                       {"gradient-tracking", "ring"},
                                                                       {"push-sum", "exponential"},
                                                                       {"relay-sgd", "chain"},
                                                                       {"gossip-pga(h=2)", "ring"},
                                                                       {"local-sgd(tau=2)", "ring"},
                                                                       {"parameter-server", "ring"}};
  return all;
}

Recipe recipe_of(const std::string& method, const std::string& topology) {
  Recipe recipe;
  recipe.options.method = method;
  recipe.options.topology = topology;
  recipe.network = "conv";
  recipe.type = torch::kFloat32;
  return recipe;
}

TEST(TrainerInvariance, BucketSizesDoNotChangeTheResult) {
  for (const auto& [method, topology] : methods())
    for (const char* optimizer : {"nesterov", "adagrad"})
      on_ranks(4, [&, method = method, topology = topology](Flock& flock) {
        Recipe recipe = recipe_of(method, topology);
        recipe.optimizer = optimizer;
        const torch::Tensor expected = train(flock, recipe);
        for (const double megabytes : {1e-6, 0.0003, 0.001}) {
          recipe.options.bucket_mb = megabytes;
          recipe.options.name = fmt::format("{}", megabytes);
          require_equal(train(flock, recipe), expected,
                        fmt::format("{} {} {} MB", method, topology, megabytes));
        }
      });
}

TEST(TrainerInvariance, EagerDoesNotChangeTheResult) {
  for (const auto& [method, topology] : methods())
    for (const char* optimizer : {"momentum", "rmsprop"})
      on_ranks(4, [&, method = method, topology = topology](Flock& flock) {
        Recipe recipe = recipe_of(method, topology);
        recipe.optimizer = optimizer;
        recipe.options.bucket_mb = 0.0003;
        const torch::Tensor expected = train(flock, recipe);
        recipe.options.eager = true;
        recipe.options.name = "eager";
        require_equal(train(flock, recipe), expected, method + " on " + topology);
      });
}

TEST(TrainerInvariance, TheFabricDoesNotChangeTheResult) {
  for (const auto& [method, topology] : methods()) {
    const Recipe recipe = recipe_of(method, topology);
    std::vector<torch::Tensor> expected(4);
    on_ranks(4,
             [&](Flock& flock) { expected[static_cast<std::size_t>(flock.rank())] = train(flock, recipe); });
    for (const char* launcher : {"local_processes", "late_threads"})
      on_ranks(
          4,
          [&](Flock& flock) {
            require_equal(train(flock, recipe), expected[static_cast<std::size_t>(flock.rank())],
                          recipe.options.method);
          },
          launcher);
  }
}

// Runs in its own process: torch's threads would not survive the forks of other tests.
TEST(TrainerInvariance, TorchThreadsDoNotChangeTheResult) {
  on_ranks(
      1,
      [](Flock& flock) {
        Recipe recipe = recipe_of("dsgd-awc", "ring");
        const torch::Tensor expected = train(flock, recipe);
        torch::set_num_threads(3);
        recipe.options.name = "threads";
        // Torch itself may sum in another order.
        require_close(train(flock, recipe), expected, "three threads", 1e-5);
      },
      "local_processes");
}

}  // namespace
}  // namespace starling::train

#include <gtest/gtest.h>

#include "starling/topology/registry.h"
#include "starling/train/experiment.h"
#include "starling/train/model/model.h"
#include "train/dense_training.h"
#include "train/trained.h"

// Tests messages of one byte per element as a Trainer sends them.
namespace starling::train {
namespace {

/// Odd sizes, and biases far from zero, which would lose their digits if they shared a scale with other
/// values.
struct OddLayers : torch::nn::Module {
  explicit OddLayers(Rank rank) {
    first = register_module("first", torch::nn::Linear(37, 29));
    second = register_module("second", torch::nn::Linear(29, 5));
    const torch::NoGradGuard no_grad;
    std::int64_t seed = 100 * rank;
    for (torch::Tensor& one : parameters())
      one.copy_(scattered(one.sizes(), ++seed, torch::kFloat32) * 0.3 + (one.dim() == 1 ? 5.0 : 0.0));
  }
  torch::Tensor loss(Rank rank) {
    const torch::Tensor x = scattered({8, 37}, 7 + rank, torch::kFloat32);
    return torch::tanh(second->forward(torch::tanh(first->forward(x) - 5)) - 5).square().mean();
  }
  torch::nn::Linear first = nullptr, second = nullptr;
};

/// The values of a parameter that other ranks decode.
torch::Tensor as_told(const torch::Tensor& parameter) {
  std::vector<torch::Tensor> runs;
  for (const torch::Tensor& run : parameter.detach().flatten().split(512)) {
    const torch::Tensor least = run.min(), greatest = run.max();
    const torch::Tensor middle =
        ((least.to(torch::kFloat64) + greatest.to(torch::kFloat64)) / 2).to(torch::kFloat32);
    const torch::Tensor reach = torch::maximum(greatest - middle, middle - least);
    runs.push_back(((run - middle) * (127 / reach)).round() * (reach / 127) + middle);
  }
  return torch::cat(runs).to(torch::kFloat64);
}

torch::Tensor all_as_told(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& one : module.parameters()) all.push_back(as_told(one));
  return torch::cat(all);
}

TEST(TrainerInt8, AStepMatchesItsEquation) {
  constexpr double kLr = 0.25;
  for (const Rank n : {3, 4})
    for (const char* method : {"dsgd-awc", "dsgd-atc"}) {
      const torch::Tensor weights = weights_at(*make_schedule("ring", n), 0);
      std::vector<torch::Tensor> x, gradients, sent;
      for (Rank r = 0; r < n; ++r) {
        OddLayers layers(r);
        layers.loss(r).backward();
        gradients.push_back(flat_gradients(layers).to(torch::kFloat64));
        if (std::string(method) == "dsgd-atc") {
          torch::optim::SGD(layers.parameters(), kLr).step();
          gradients.back().zero_();
        }
        sent.push_back(all_as_told(layers));
        x.push_back(flat_parameters(layers).detach().to(torch::kFloat64).clone());
      }
      const torch::Tensor mixed =
          torch::stack(x) + torch::mm(weights, torch::stack(sent)) - torch::stack(sent);
      const torch::Tensor expected = mixed - kLr * torch::stack(gradients);
      for (const double megabytes : {4.0, 1e-3, 1e-6})
        on_ranks(n, [&](Flock& flock) {
          OddLayers layers(flock.rank());
          torch::optim::SGD sgd(layers.parameters(), kLr);
          Trainer trainer(flock, layers, sgd,
                          {.method = method,
                           .topology = "ring",
                           .bucket_mb = megabytes,
                           .message = "int8",
                           .broadcast_at_start = false});
          trainer.zero_grad();
          layers.loss(flock.rank()).backward();
          trainer.step();
          require_close(flat_parameters(layers).to(torch::kFloat64), expected[flock.rank()],
                        fmt::format("{}, n = {}, {} MB", method, n, megabytes), 2e-7);
        });
    }
}

TEST(TrainerInt8, BucketsEagerAndProcessesDoNotChangeTheBits) {
  for (const auto& [method, topology] :
       {std::pair{"dsgd-awc", "one-peer-exponential"}, {"dsgd-atc", "ceca"}, {"gradient-tracking", "ring"}}) {
    Recipe recipe{{.method = method, .topology = topology, .message = "int8"}, "conv", "nesterov"};
    recipe.type = torch::kFloat32;
    std::vector<torch::Tensor> expected(4);
    const auto own = [&](const Flock& flock) -> torch::Tensor& {
      return expected[static_cast<std::size_t>(flock.rank())];
    };
    on_ranks(4, [&](Flock& flock) { own(flock) = train(flock, recipe); });
    recipe.options.bucket_mb = 0.0003;
    on_ranks(4, [&](Flock& flock) { require_equal(train(flock, recipe), own(flock), method); });
    recipe.options.eager = true;
    on_ranks(
        4, [&](Flock& flock) { require_equal(train(flock, recipe), own(flock), method); }, "local_processes");
  }
}

TEST(TrainerInt8, OtherTypesThanFloat32AreSentUnchanged) {
  on_ranks(2, [](Flock& flock) {
    const torch::Tensor expected = train(flock, {{.name = "a"}});
    require_equal(train(flock, {{.message = "int8", .name = "b"}}), expected, "float64");
  });
}

TEST(TrainerInt8, KeepsTheMeanAndAgreesUpToOneQuantum) {
  on_ranks(4, [](Flock& flock) {
    OddLayers layers(flock.rank());
    torch::optim::SGD sgd(layers.parameters(), 0.0);
    Trainer trainer(flock, layers, sgd, {.topology = "ring", .message = "int8", .broadcast_at_start = false});
    const auto mean = [&] {
      const auto averaged = trainer.global_average();
      return flat_parameters(layers).clone();
    };
    const torch::Tensor before = mean();
    for (Step t = 0; t < 60; ++t) {
      trainer.zero_grad();
      layers.loss(flock.rank()).backward();
      trainer.step();
    }
    require_close(mean(), before, "the mean", 1e-6);
    const double step = 0.3 / 254;
    const double apart = (flat_parameters(layers) - before).abs().max().item<double>();
    require(apart < 3 * step, fmt::format("{} steps from the mean", apart / step));
  });
}

// 61,706 parameters; the smallest tensors have a few elements.
TEST(TrainerInt8, SendsAQuarterOfTheBytes) {
  on_ranks(2, [](Flock& flock) {
    const auto bytes_of_a_step = [&](const std::string& message) {
      const ModelPtr lenet = make_model("lenet", {1, 28, 28, 10});
      torch::optim::SGD sgd(lenet->parameters(), 0.1);
      Trainer trainer(flock, *lenet, sgd, {.message = message, .name = message});
      const std::uint64_t before = flock.bytes_sent();
      trainer.zero_grad();
      lenet->forward(torch::zeros({1, 1, 28, 28})).sum().backward();
      trainer.step();
      return static_cast<double>(flock.bytes_sent() - before);
    };
    const double share = bytes_of_a_step("int8") / bytes_of_a_step("float32");
    require(share < 0.27 && share > 0.25, fmt::format("{} of float32's bytes", share));
  });
}

TEST(TrainerInt8, LearnsAsWellAsWithFloat32) {
  const auto accuracy_with = [](const std::string& message) {
    double accuracy = 0;
    on_ranks(4, [&](Flock& flock) {
      Experiment experiment;
      torch::set_num_threads(1);
      experiment.data = "synthetic(train=2000,test=1000)";
      experiment.model = "mlp(layers=2, width=64)";
      experiment.optimizer = "momentum(lr=0.02)";
      experiment.epochs = 3;
      experiment.batch = 16;
      experiment.reports = 1;
      experiment.message = message;
      const RunReport last = run_experiment(flock, experiment, [](const RunEvent&) {});
      if (flock.rank() == 0) accuracy = *last.test_accuracy;
    });
    return accuracy;
  };
  const double exact = accuracy_with("float32");
  EXPECT_GT(exact, 0.8);
  EXPECT_GE(accuracy_with("int8"), exact - 0.005);
}

}  // namespace
}  // namespace starling::train

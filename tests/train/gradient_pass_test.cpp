#include "starling/train/gradient_pass.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "starling/train/experiment.h"
#include "train/trained.h"

namespace starling::train {
namespace {

/// Behaves like a graph of a device: repeating does the work.
class FakeGraph final : public DeviceGraph {
 public:
  explicit FakeGraph(int& replays) : replays_(replays) {}

  void record(const std::function<void()>& body) override {
    EXPECT_FALSE(body_) << "recorded twice";
    body_ = body;
    body();
  }
  void replay() override {
    ++replays_;
    body_();
  }

 private:
  int& replays_;
  std::function<void()> body_;
};

struct Pass {
  std::vector<double> losses;
  torch::Tensor parameters;
  int replays = 0;
};

// Trains on batches of these sizes.
Pass train_batches(const Task& task, bool with_graph, const std::vector<std::size_t>& sizes) {
  Pass pass;
  torch::manual_seed(3);
  const ModelPtr model = task.make_model("mlp(width=16)");
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  GradientPass::MakeGraph make;
  if (with_graph) make = [&] { return std::make_unique<FakeGraph>(pass.replays); };
  GradientPass gradients(task, *model, 2, make);
  std::uint32_t next = 0;
  for (const std::size_t size : sizes) {
    for (const torch::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
    for (int k = 0; k < 2; ++k) {
      std::vector<std::uint32_t> samples;
      for (std::size_t i = 0; i < size; ++i) samples.push_back(next++ % 100);
      pass.losses.push_back(gradients.loss(samples).item<double>());
      gradients.backward();
    }
    sgd.step();
  }
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : model->parameters()) flat.push_back(parameter.detach().flatten());
  pass.parameters = torch::cat(flat);
  return pass;
}

TEST(GradientPass, AGraphRepeatsTheWorkOfABatch) {
  const auto task = make_task("synthetic(train=100,test=10)");
  const std::vector<std::size_t> sizes = {8, 8, 8, 5, 8, 5, 8};
  const Pass usual = train_batches(*task, false, sizes);
  const Pass repeated = train_batches(*task, true, sizes);
  EXPECT_EQ(usual.replays, 0);
  EXPECT_EQ(repeated.replays, 14 - 3 - 1) << "all but the first three batches, and the first of 5";
  EXPECT_EQ(repeated.losses, usual.losses);
  EXPECT_TRUE(torch::equal(repeated.parameters, usual.parameters));
}

TEST(GradientPass, RecordsTwoSizes) {
  const auto task = make_task("synthetic(train=100,test=10)");
  const std::vector<std::size_t> sizes = {8, 8, 5, 6, 6, 8, 5};
  const Pass repeated = train_batches(*task, true, sizes);
  EXPECT_EQ(repeated.replays, 14 - 3 - 1 - 4);
  EXPECT_EQ(repeated.losses, train_batches(*task, false, sizes).losses);
}

TEST(GradientPass, WithoutGraphsEveryBatchIsComputedAsUsual) {
  const auto task = make_task("synthetic(train=100,test=10)");
  const ModelPtr model = task->make_model("mlp(width=16)");
  GradientPass gradients(*task, *model, 1, [] { return make_graph(torch::kCPU); });
  for (int i = 0; i < 6; ++i) {
    EXPECT_GT(gradients.loss(std::vector<std::uint32_t>{0, 1}).item<double>(), 0);
    gradients.backward();
  }
}

// A graph computes gradients without autograd, so no hook runs.
TEST(GradientPass, TheTrainerTakesGradientsOfAGraph) {
  for (const std::string method : {"dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking"})
    for (const bool on_device : {false, true}) {
      const Recipe recipe{.options = {.method = method, .topology = "ring"}, .network = "conv", .steps = 4};
      const auto body = [&](const std::shared_ptr<Fabric>& fabric) {
        Flock flock(fabric);
        flock.set_timeout(20s);
        Recipe usual = recipe;
        usual.options.name = "usual";
        const torch::Tensor expected = train(flock, usual);
        const NetworkPtr network = make_network(recipe.network, flock.rank(), recipe.type);
        const OptimizerPtr optimizer = local_optimizer(recipe.optimizer).make(network->parameters());
        Trainer trainer(flock, *network, *optimizer, recipe.options);
        for (Step t = 0; t < recipe.steps; ++t) {
          trainer.zero_grad();
          const auto found =
              torch::autograd::grad({loss_of(*network, flock.rank(), t)}, network->parameters());
          for (std::size_t i = 0; i < found.size(); ++i) network->parameters()[i].mutable_grad() = found[i];
          trainer.step();
        }
        require_equal(flat_parameters(*network), expected, method);
      };
      pretend_tensors_are_on_device(on_device);
      for (const RankEnd& end : (on_device ? inline_device_launchers() : launchers())[0].run(3, body))
        EXPECT_TRUE(end.ok) << end.message;
      pretend_tensors_are_on_device(false);
    }
}

}  // namespace
}  // namespace starling::train

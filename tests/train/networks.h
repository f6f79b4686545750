#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/utils.h>
#include <vector>

#include "starling/base/types.h"
#include "starling/train/torch_version.h"

// Small networks, of float64 unless a test asks for another type, data and optimizers whose every number
// follows from formulas: ranks in other threads and processes make the same ones up without a random
// generator between them.
namespace starling::train {

class Network : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  virtual std::vector<std::int64_t> input() const = 0;  // sizes of one example
};
using NetworkPtr = std::shared_ptr<Network>;

/// "mlp" or "conv"; different values of `start` give different starts.
NetworkPtr make_network(const std::string& kind, std::int64_t start = 0, torch::Dtype type = torch::kFloat64);

/// Numbers between -0.5 and 0.5.
torch::Tensor scattered(torch::IntArrayRef sizes, std::int64_t seed, torch::Dtype type = torch::kFloat64);

/// The loss of this rank's batch in this step; every rank has different data.
torch::Tensor loss_of(Network& network, Rank rank, Step step, std::int64_t examples = 4);

torch::Tensor flat_parameters(const torch::nn::Module& module);
torch::Tensor flat_gradients(const torch::nn::Module& module);
void set_parameters(torch::nn::Module& module, const torch::Tensor& flat);

using Tensors = std::vector<torch::Tensor>;
using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;
struct TestOptimizer {
  std::string name;
  std::function<OptimizerPtr(Tensors)> make;
};
/// SGD with several settings, Adam, AdamW, RMSprop, Adagrad, and `Softened`.
const std::vector<TestOptimizer>& local_optimizers();
const TestOptimizer& local_optimizer(const std::string& name);

/// An optimizer that torch does not have: x -= lr m / (1 + |m|) with m = 0.8 m + g.
class Softened : public torch::optim::Optimizer {
 public:
  struct Options : public torch::optim::OptimizerCloneableOptions<Options> {
    double rate = 0.1;
    double get_lr() const override { return rate; }
    void set_lr(const double lr) override { rate = lr; }
  };
  explicit Softened(Tensors parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<Options>()) {}
  torch::Tensor step(LossClosure closure = nullptr) override;

 private:
  std::unordered_map<torch::TensorImpl*, torch::Tensor> m_;
};

}  // namespace starling::train

#pragma once

#include "train/trained.h"

namespace starling::train {

/// A network with unusual parts: a layer that is used twice, a frozen one, and one that only some steps use.
class OddNetwork final : public Network {
 public:
  explicit OddNetwork(std::int64_t start, bool equally_frozen = true) {
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    std::int64_t k = 0;
    for (torch::Tensor& parameter : parameters())
      parameter.copy_(scattered(parameter.sizes(), 50 * start + k++));
    frozen_->weight.copy_(scattered({4, 4}, equally_frozen ? 999 : 999 + start));
    frozen_->bias.zero_();
    for (torch::Tensor& parameter : frozen_->parameters()) parameter.set_requires_grad(false);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = torch::tanh(shared_->forward(torch::tanh(shared_->forward(x))));
    y = frozen_->weight.matmul(y.t()).t();
    if (use_extra) y = y + extra_->forward(y);
    return head_->forward(y);
  }
  std::vector<std::int64_t> input() const override { return {4}; }

  bool use_extra = false;
  torch::Tensor frozen() const { return frozen_->weight; }

 private:
  torch::nn::Linear shared_ = register_module("shared", torch::nn::Linear(4, 4));
  torch::nn::Linear frozen_ = register_module("frozen", torch::nn::Linear(4, 4));
  torch::nn::Linear extra_ = register_module("extra", torch::nn::Linear(4, 4));
  torch::nn::Linear head_ = register_module("head", torch::nn::Linear(4, 3));
};

inline void forget_gradients(torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) parameter.mutable_grad() = torch::Tensor();
}

/// Reference for a flock of two: both ranks in plain torch.
class Pair {
 public:
  using Make = std::function<NetworkPtr(Rank)>;
  using Optimize = std::function<OptimizerPtr(Network&)>;

  Pair(const Make& make, const Optimize& optimize) {
    for (const Rank r : {0, 1}) {
      networks.push_back(make(r));
      optimizers.push_back(optimize(*networks.back()));
    }
  }
  void start_equal() { set_parameters(*networks[1], flat_parameters(*networks[0])); }

  void backward(const std::function<torch::Tensor(Network&, Rank)>& loss) {
    for (const Rank r : {0, 1}) {
      forget_gradients(network(r));
      loss(network(r), r).backward();
    }
  }
  /// Replaces both models by their mean.
  void mix() {
    const torch::Tensor mean = (flat_parameters(network(0)) + flat_parameters(network(1))) / 2;
    for (const Rank r : {0, 1}) set_parameters(network(r), mean);
  }
  /// Replaces both gradients by their mean.
  void mix_gradients() {
    const auto mine = network(0).parameters();
    const auto theirs = network(1).parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!mine[i].grad().defined()) continue;
      const torch::Tensor mean = (mine[i].grad() + theirs[i].grad()) / 2;
      mine[i].mutable_grad() = mean;
      theirs[i].mutable_grad() = mean.clone();
    }
  }
  void step() {
    for (const OptimizerPtr& optimizer : optimizers) optimizer->step();
  }

  Network& network(Rank rank) { return *networks[static_cast<std::size_t>(rank)]; }
  std::vector<NetworkPtr> networks;
  std::vector<OptimizerPtr> optimizers;
};

inline Pair mlp_pair(const std::string& optimizer) {
  return Pair(
      [](Rank r) { return make_network("mlp", r); },
      [optimizer](Network& network) { return local_optimizer(optimizer).make(network.parameters()); });
}

}  // namespace starling::train

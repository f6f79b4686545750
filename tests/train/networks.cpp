#include "train/networks.h"

#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::train {
namespace {

// Ranks are threads or forked processes: torch's own threads would be too many, and they do not survive a
// fork.
class OneThread : public testing::Environment {
  void SetUp() override { torch::set_num_threads(1); }
};
[[maybe_unused]] const auto* const kOneThread = testing::AddGlobalTestEnvironment(new OneThread);

class Mlp final : public Network {
 public:
  Mlp() {
    for (const auto& [in, out] : {std::pair{5, 7}, {7, 6}, {6, 3}})
      layers_.push_back(
          register_module("layer" + std::to_string(layers_.size()), torch::nn::Linear(in, out)));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return layers_[2]->forward(torch::tanh(layers_[1]->forward(torch::tanh(layers_[0]->forward(x)))));
  }
  std::vector<std::int64_t> input() const override { return {5}; }

 private:
  std::vector<torch::nn::Linear> layers_;
};

class Conv final : public Network {
 public:
  torch::Tensor forward(const torch::Tensor& x) override {
    return head_->forward(torch::tanh(filter_->forward(x)).flatten(1));
  }
  std::vector<std::int64_t> input() const override { return {1, 6, 6}; }

 private:
  torch::nn::Conv2d filter_ = register_module("filter", torch::nn::Conv2d(1, 3, 3));
  torch::nn::Linear head_ = register_module("head", torch::nn::Linear(3 * 4 * 4, 3));
};

template <typename Optimizer, typename Options>
TestOptimizer with(const std::string& name, const Options& options) {
  return {name, [options](Tensors parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          }};
}

}  // namespace

torch::Tensor scattered(torch::IntArrayRef sizes, std::int64_t seed, torch::Dtype type) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  const torch::Tensor place = torch::arange(count, torch::kFloat64);
  return (torch::sin(place * 12.9898 + static_cast<double>(seed) * 78.233) * 43758.5453)
      .frac()
      .mul(0.5)
      .reshape(sizes)
      .to(type);
}

NetworkPtr make_network(const std::string& kind, std::int64_t start, torch::Dtype type) {
  const NetworkPtr network = kind == "mlp" ? NetworkPtr(new Mlp) : NetworkPtr(new Conv);
  network->to(type);
  const torch::NoGradGuard no_grad;
  std::int64_t k = 0;
  for (torch::Tensor& parameter : network->parameters())
    parameter.copy_(scattered(parameter.sizes(), 100 * start + k++));
  return network;
}

torch::Tensor loss_of(Network& network, Rank rank, Step step, std::int64_t examples) {
  const torch::Dtype type = network.parameters()[0].scalar_type();
  std::vector<std::int64_t> sizes = network.input();
  sizes.insert(sizes.begin(), examples);
  const std::int64_t seed = 7919 * (step + 1) + 31 * rank;
  const torch::Dtype of_loss = c10::elementSize(type) == 2 ? torch::kFloat32 : type;
  const torch::Tensor target = scattered({examples, 3}, seed + 1, of_loss) + static_cast<double>(rank) * 0.2;
  return torch::mse_loss(network.forward(scattered(sizes, seed, type) * 2).to(of_loss), target);
}

torch::Tensor flat_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : module.parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

torch::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : module.parameters()) parts.push_back(parameter.grad().flatten());
  return torch::cat(parts);
}

void set_parameters(torch::nn::Module& module, const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  std::int64_t at = 0;
  for (torch::Tensor& parameter : module.parameters()) {
    parameter.copy_(flat.narrow(0, at, parameter.numel()).view(parameter.sizes()));
    at += parameter.numel();
  }
}

torch::Tensor Softened::step(LossClosure) {
  const torch::NoGradGuard no_grad;
  for (auto& group : param_groups())
    for (torch::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      torch::Tensor& m = m_[parameter.unsafeGetTensorImpl()];
      m = m.defined() ? m * 0.8 + parameter.grad() : parameter.grad().clone();
      parameter.sub_(group.options().get_lr() * m / (1 + m.abs()));
    }
  return {};
}

const std::vector<TestOptimizer>& local_optimizers() {
  using namespace torch::optim;
  static const std::vector<TestOptimizer> all = {
      with<SGD>("sgd", SGDOptions(0.1)),
      with<SGD>("momentum", SGDOptions(0.1).momentum(0.9).weight_decay(0.01)),
      with<SGD>("dampened", SGDOptions(0.1).momentum(0.8).dampening(0.3)),
      with<SGD>("nesterov", SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.02)),
      with<Adam>("adam", AdamOptions(0.02).weight_decay(0.01)),
      with<AdamW>("adamw", AdamWOptions(0.02).weight_decay(0.1)),
      with<Adam>("amsgrad", AdamOptions(0.02).amsgrad(true)),
      with<RMSprop>("rmsprop", RMSpropOptions(0.01).momentum(0.5)),
      with<Adagrad>("adagrad", AdagradOptions(0.05)),
      {"softened", [](Tensors parameters) { return std::make_unique<Softened>(std::move(parameters)); }},
  };
  return all;
}

const TestOptimizer& local_optimizer(const std::string& name) {
  for (const TestOptimizer& one : local_optimizers())
    if (one.name == name) return one;
  throw Error("no optimizer " + name);
}

}  // namespace starling::train

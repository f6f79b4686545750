#include "starling/train/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/train/torch_optimizer.h"

namespace starling::train {
namespace {

torch::nn::Sequential small_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::Linear(5, 2));
}

TEST(Bucket, HoldsParametersInTheOrderOfBackward) {
  auto net = small_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto parameters = trained_parameters(tensors_of(*net), TorchOptimizer(sgd).groups());
  std::vector<std::string> names;
  for (const Placed& placed : parameters) names.push_back(placed.name);
  EXPECT_THAT(names, testing::ElementsAre("1.bias", "1.weight", "0.bias", "0.weight"));
}

TEST(Bucket, ParametersBecomeViewsWithTheSameValues) {
  auto net = small_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<torch::Tensor> before;
  for (const auto& parameter : net->parameters()) before.push_back(parameter.detach().clone());
  auto parameters = trained_parameters(tensors_of(*net), TorchOptimizer(sgd).groups());
  const auto buckets = flatten(parameters, 1 << 20);
  ASSERT_EQ(buckets.size(), 1U);
  const auto after = net->parameters();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
  for (const Placed& placed : parameters) {
    EXPECT_EQ(placed.parameter.storage().data(), buckets[0].x.storage().data()) << placed.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(placed.parameter.data_ptr()) % 64, 0U) << placed.name;
    EXPECT_TRUE(placed.parameter.grad().is_same(placed.gradient)) << placed.name;
  }
}

TEST(Bucket, ClosesWhenFull) {
  auto net = small_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto parameters = trained_parameters(tensors_of(*net), TorchOptimizer(sgd).groups());
  EXPECT_EQ(flatten(parameters, 1).size(), 4U);
}

TEST(Bucket, TakesASharedParameterOnceAndLeavesFrozenOnesAlone) {
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential net(shared, torch::nn::ReLU(), shared, torch::nn::Linear(4, 2));
  net->parameters().back().set_requires_grad(false);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_EQ(trained_parameters(tensors_of(*net), TorchOptimizer(sgd).groups()).size(), 3U);
}

TEST(Bucket, RefusesWhatCannotBeAveraged) {
  torch::nn::Linear net(2, 2);
  net->to(torch::kComplexFloat);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_THROW(trained_parameters(tensors_of(*net), TorchOptimizer(sgd).groups()), InvalidArgument);
}

}  // namespace
}  // namespace starling::train

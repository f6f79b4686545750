#include <cmath>
#include <gtest/gtest.h>

#include "train/trained.h"

// What a trainer says about the flock's models.
namespace starling::training {
namespace {

// Whichever all-reduce makes the mean: in float32, the mean of equal values may have another last bit.
TEST(ConsensusDistance, OfEqualModelsIsZero) {
  for (const char* way : {"direct", "ring", "native"})
    for (const Rank n : {3, 5})
      on_ranks(n, [&](Flock& flock) {
        flock.set_allreduce(way);
        const NetworkPtr network = make_network("mlp", 0);
        network->to(torch::kFloat32);
        torch::optim::SGD sgd(network->parameters(), 0.1);
        Trainer trainer(flock, *network, sgd, {.method = "dsgd-awc"});
        require(trainer.consensus_distance() == 0, "equal models");
        {
          const auto averaged = trainer.global_average();
          require(trainer.consensus_distance() == 0, "the mean of equal models");
        }
        const torch::NoGradGuard no_grad;
        const torch::Tensor before = network->parameters()[0].clone();
        network->parameters()[0].add_(flock.rank() == 0 ? 0.5 : 0.0);
        // One of n is 0.5 off in every element of one tensor.
        const double expected =
            0.5 * std::sqrt(static_cast<double>(before.numel()) * (n - 1)) / static_cast<double>(n);
        require(std::abs(trainer.consensus_distance() / expected - 1) < 1e-5, "one model that is off");
      });
}

// Averages of equal models leave them as they are, with every kind of weights.
TEST(ConsensusDistance, MixesOfEqualModelsMoveNothing) {
  for (const char* topology : {"ring", "star", "complete"})
    on_ranks(5, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp", 0);
      network->to(torch::kFloat32);
      torch::optim::SGD sgd(network->parameters(), 0.0);
      Trainer trainer(flock, *network, sgd, {.method = "dsgd-awc", .topology = topology});
      const torch::Tensor before = flat_parameters(*network).clone();
      for (Step t = 0; t < 3; ++t) {
        trainer.zero_grad();
        torch::Tensor loss = torch::zeros({});
        for (const torch::Tensor& parameter : network->parameters()) loss = loss + (parameter * 0).sum();
        loss.backward();
        trainer.step();
        require(torch::equal(flat_parameters(*network), before), topology);
      }
    });
}

}  // namespace
}  // namespace starling::training

#include <gtest/gtest.h>
#include <sstream>
#include <torch/serialize.h>

#include "train/trained.h"

namespace starling::train {
namespace {

TEST(TorchOptimizer, ARunSavedByTorchContinuesBitForBit) {
  for (const auto& [method, optimizer] :
       std::vector<std::pair<std::string, std::string>>{{"dsgd-awc", "momentum"},
                                                        {"dsgd-awc", "adam"},
                                                        {"dsgd-atc", "adamw"},
                                                        {"dsgd-awc", "rmsprop"},
                                                        {"allreduce", "nesterov"},
                                                        {"accum-adam(s=3)", "adam"},
                                                        {"accum-adamw(s=2)", "adamw"},
                                                        {"local-sgd(tau=4)", "momentum"}})
    on_ranks(4, [method = method, optimizer = optimizer](Flock& flock) {
      const TrainerOptions options{.method = method, .bucket_mb = 1e-5, .broadcast_at_start = false};
      std::stringstream model, state;
      torch::Tensor expected;
      {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
        TrainerOptions named = options;
        named.name = "first";
        Trainer trainer(flock, *network, *local, named);
        for (Step t = 0; t < 5; ++t) train_step(trainer, *network, flock.rank(), t);
        trainer.export_optimizer_state();
        torch::serialize::OutputArchive archive;
        network->save(archive);
        archive.save_to(model);
        torch::save(*local, state);
        for (Step t = 5; t < 9; ++t) train_step(trainer, *network, flock.rank(), t);
        expected = flat_parameters(*network).clone();
      }
      // Restores in both orders: before and after the trainer is constructed.
      for (const bool before : {true, false}) {
        const NetworkPtr network = make_network("mlp", 77);
        const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
        const auto load = [&] {
          std::stringstream model_again(model.str()), state_again(state.str());
          torch::serialize::InputArchive archive;
          archive.load_from(model_again);
          network->load(archive);
          torch::load(*local, state_again);
        };
        if (before) load();
        TrainerOptions named = options;
        named.name = before ? "before" : "after";
        named.bucket_mb = 4;  // not part of the saved state
        Trainer trainer(flock, *network, *local, named);
        if (!before) {
          load();
          trainer.import_optimizer_state();
        }
        trainer.set_steps(5);
        for (Step t = 5; t < 9; ++t) train_step(trainer, *network, flock.rank(), t);
        require_equal(flat_parameters(*network), expected,
                      fmt::format("{} {} {}", method, optimizer, named.name));
      }
    });
}

// As docs/training.md says; torch rounds after each operation.
TEST(TorchOptimizer, ShortParametersAreUpdatedInFloat32AndRoundedOnce) {
  on_ranks(1, [](Flock& flock) {
    for (const torch::Dtype type : {torch::kBFloat16, torch::kFloat16}) {
      const NetworkPtr network = make_network("mlp", 1, type);
      torch::Tensor x = flat_parameters(*network), m;
      const OptimizerPtr momentum = local_optimizer("momentum").make(network->parameters());
      Trainer trainer(flock, *network, *momentum, {});
      for (Step t = 0; t < 4; ++t) {
        trainer.zero_grad();
        std::vector<torch::Tensor> gradients;
        for (const torch::Tensor& parameter : network->parameters()) {
          parameter.grad().copy_(scattered(parameter.sizes(), 5 + t, type));
          gradients.push_back(parameter.grad().flatten().to(torch::kFloat32));
        }
        trainer.step();
        const torch::Tensor y = x.to(torch::kFloat32);
        const torch::Tensor d = y * 0.01 + torch::cat(gradients);
        const torch::Tensor next_m = t == 0 ? d : m.to(torch::kFloat32) * 0.9 + d;
        m = next_m.to(type);
        x = (y - next_m * 0.1).to(type);
        require_equal(flat_parameters(*network), x, fmt::format("step {}", t));
      }
    }
  });
}

}  // namespace
}  // namespace starling::train

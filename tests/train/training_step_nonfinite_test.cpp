#include <gtest/gtest.h>

#include "train/trained.h"

// Tests gradients that are infinite or NaN on one rank.
namespace starling::train {
namespace {

constexpr Step kBadStep = 1;
const std::vector<std::string> kSpreadingMethods = {"dsgd-awc",  "dsgd-atc", "gradient-tracking",
                                                    "relay-sgd", "choco",    "quasi-global-momentum",
                                                    "allreduce", "bytegrad", "parameter-server"};

bool is_finite(Network& network) {
  return flat_parameters(network).isfinite().all().item<bool>();
}

/// One step in which rank 1's gradient of one parameter is bad, if t is the bad step.
bool step_of(Trainer& trainer, Network& network, Rank rank, Step t) {
  trainer.zero_grad();
  torch::Tensor loss = loss_of(network, rank, t);
  if (rank == 1 && t == kBadStep) loss = loss + network.parameters()[2].flatten()[1] * HUGE_VAL;
  loss.backward();
  return trainer.step();
}

std::string topology_for(const std::string& method) {
  return method == "relay-sgd" ? "chain" : "ring";
}

TEST(TrainingStepNonFinite, RaisesBeforeTheyAreSent) {
  for (const std::string& method : kSpreadingMethods)
    for (const char* optimizer : {"sgd", "rmsprop"})
      for (const double clip : {0.0, 1.0}) {
        if (method == "quasi-global-momentum" && std::string(optimizer) != "sgd") continue;
        on_ranks(2, [&](Flock& flock) {
          const NetworkPtr network = make_network("mlp");
          const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
          const std::string name = network->named_parameters().keys()[2];
          Trainer trainer(
              flock, *network, *local,
              {.method = method, .topology = topology_for(method), .bucket_mb = 1e-5, .clip_norm = clip});
          const auto train = [&] {
            for (Step t = 0; t < 4; ++t) step_of(trainer, *network, flock.rank(), t);
          };
          if (flock.rank() == 1) {
            const std::string text = message_of<NonFinite>(train);
            require(
                text.find(fmt::format("rank 1, training step {}: the gradient of {} is not finite (inf at "
                                      "element 1)",
                                      kBadStep, name)) != std::string::npos,
                text);
            return;
          }
          const std::string text = message_of<PeerLost>(train);
          require(text.find("1") != std::string::npos, text);
          require(is_finite(*network), method + ": it has come here");
        });
      }
}

TEST(TrainingStepNonFinite, SurvivorsContinueUnderReweight) {
  for (const char* method : {"dsgd-awc", "allreduce"})
    on_ranks(3, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp");
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(flock, *network, sgd,
                      {.method = method, .topology = "ring", .on_peer_failure = "reweight"});
      const auto train = [&] {
        for (Step t = 0; t < 4; ++t) step_of(trainer, *network, flock.rank(), t);
      };
      if (flock.rank() == 1) {
        message_of<NonFinite>(train);
        return;
      }
      train();
      require(is_finite(*network), method);
    });
}

TEST(TrainingStepNonFinite, FindsNonFiniteUpdates) {
  on_ranks(1, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 1e300);
    Trainer trainer(flock, *network, sgd, {});
    trainer.zero_grad();
    (loss_of(*network, 0, 0) * 1e20).backward();
    const std::string text = message_of<NonFinite>([&] { trainer.step(); });
    require(text.find("the gradient is finite, but the update of") != std::string::npos, text);
  });
}

TEST(TrainingStepNonFinite, SkipSkipsThisRanksUpdate) {
  for (const std::string& method : kSpreadingMethods)
    on_ranks(2, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp");
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(
          flock, *network, sgd,
          {.method = method, .topology = topology_for(method), .bucket_mb = 1e-5, .on_nonfinite = "skip"});
      for (Step t = 0; t < 4; ++t) {
        const torch::Tensor before = flat_parameters(*network).clone();
        const bool good = step_of(trainer, *network, flock.rank(), t);
        require(good == (flock.rank() != 1 || t != kBadStep), "step() returns");
        require(is_finite(*network), fmt::format("{} step {}", method, t));
        require(!torch::equal(before, flat_parameters(*network)) || !good, "no step");
      }
    });
}

TEST(TrainingStepNonFinite, IgnoresThemIfAsked) {
  for (const char* method : {"dsgd-atc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp");
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(flock, *network, sgd, {.method = method, .topology = "ring", .on_nonfinite = "ignore"});
      for (Step t = 0; t < 3; ++t) require(step_of(trainer, *network, flock.rank(), t), "step() returns");
      require(!is_finite(*network), "where has it gone?");
    });
}

TEST(TrainingStepNonFinite, SkipsOverflowsOfALossScale) {
  on_ranks(2, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.method = "allreduce", .loss_scale = 16});
    for (Step t = 0; t < 3; ++t) {
      const bool good = step_of(trainer, *network, flock.rank(), t);
      require(good == (t != kBadStep), "everybody skips");
      require(trainer.loss_scale() == (t < kBadStep ? 16 : 8), "loss scale");
    }
    require(is_finite(*network), "finite");
  });
}

TEST(TrainingStepNonFinite, RefusesUnknownPolicies) {
  on_ranks(1, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    const std::string text = message_of<InvalidArgument>(
        [&] { const Trainer trainer(flock, *network, sgd, {.on_nonfinite = "rase"}); });
    require(text.find("on_nonfinite") != std::string::npos && text.find("raise") != std::string::npos, text);
  });
}

TEST(TrainingStepNonFinite, NamesTheRankWhoseProgramWroteTheValue) {
  on_ranks(3, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.topology = "ring"});
    train_step(trainer, *network, flock.rank(), 0);
    if (flock.rank() == 1) {
      const torch::NoGradGuard no_grad;
      network->parameters()[2].flatten()[1] = NAN;
      const std::string name = network->named_parameters().keys()[2];
      const std::string text = message_of<NonFinite>([&] { train_step(trainer, *network, 1, 1); });
      require(text.find(fmt::format("rank 1, before training step 1: the program has changed parameter {}, "
                                    "which is not finite now (nan at element 1)",
                                    name)) == 0,
              text);
      return;
    }
    message_of<PeerLost>([&] { train_step(trainer, *network, flock.rank(), 1); });
    require(is_finite(*network), "it has come here");
  });
}

// Rank 1 has started with this value.
TEST(TrainingStepNonFinite, AValueMayHaveComeFromANeighbor) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    if (flock.rank() == 1) set_parameters(*network, flat_parameters(*network) * NAN);
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.topology = "ring", .broadcast_at_start = false});
    const std::string text = message_of<NonFinite>([&] { train_step(trainer, *network, flock.rank(), 0); });
    const bool may = text.find("Or the value came from a neighbor's model") != std::string::npos;
    require(may == (flock.rank() == 0), text);
  });
}

}  // namespace
}  // namespace starling::train

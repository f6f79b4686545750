#include <gtest/gtest.h>

#include "train/odd_network.h"

// Steps in which a rank contributes nothing: empty batches, overflows, exhausted data.
namespace starling::train {
namespace {

TEST(TrainerEpochs, ASkippingRankTakesPartWithItsUnchangedModel) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "parameter-server"})
    on_ranks(2, [&](Flock& flock) {
      const std::string name = method;
      const bool central = name == "allreduce" || name == "parameter-server";
      Pair pair = mlp_pair("momentum");
      if (central) pair.start_equal();
      const NetworkPtr network = make_network("mlp", flock.rank());
      const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
      Trainer trainer(flock, *network, *local, {.method = method, .broadcast_at_start = central});
      for (Step t = 0; t < 4; ++t) {
        const auto skips = [&](Rank r) { return t % 2 == 1 && r == 1; };
        if (skips(flock.rank()))
          trainer.skip();
        else
          train_step(trainer, *network, flock.rank(), t);
        pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
        if (central) {
          // The mean over the ranks that had a gradient.
          if (skips(1)) {
            for (std::size_t i = 0; i < pair.network(0).parameters().size(); ++i)
              pair.network(1).parameters()[i].mutable_grad() = pair.network(0).parameters()[i].grad().clone();
          } else {
            pair.mix_gradients();
          }
          pair.step();
        } else {
          if (name == "dsgd-awc") pair.mix();
          for (const Rank r : {0, 1})
            if (!skips(r)) pair.optimizers[static_cast<std::size_t>(r)]->step();
          if (name == "dsgd-atc") pair.mix();
        }
        require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                      fmt::format("{} step {}", method, t));
      }
    });
}

TEST(TrainerEpochs, ASkippingRankClipsTheMeanGradientLikeTheOthers) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", 0);
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.method = "allreduce", .clip_norm = 0.01});
    for (Step t = 0; t < 3; ++t) {
      if (flock.rank() == 1)
        trainer.skip();
      else
        train_step(trainer, *network, flock.rank(), t);
      require(trainer.consensus_distance() == 0, "the ranks differ");
    }
  });
}

// Also after backward(), if the gradients turn out to be useless.
TEST(TrainerEpochs, SkipAfterBackwardDiscardsTheGradient) {
  on_ranks(2, [](Flock& flock) {
    const auto run = [&](bool late, const std::string& name) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      const OptimizerPtr local = local_optimizer("adam").make(network->parameters());
      Trainer trainer(flock, *network, *local, {.name = name});
      for (Step t = 0; t < 3; ++t) {
        if (t != 1) {
          train_step(trainer, *network, flock.rank(), t);
          continue;
        }
        trainer.zero_grad();
        if (late) loss_of(*network, flock.rank(), t).backward();
        trainer.skip();
      }
      return flat_parameters(*network).clone();
    };
    require_equal(run(true, "late"), run(false, "early"), "skip");
  });
  on_ranks(1, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.eager = true});
    trainer.zero_grad();
    loss_of(*network, 0, 0).backward();
    const std::string text = message_of<InvalidArgument>([&] { trainer.skip(); });
    require(text.find("eager has updated already") != std::string::npos, text);
  });
}

TEST(TrainerEpochs, ALossScaleDoesNotChangeTheResult) {
  for (const char* method : {"dsgd-awc", "allreduce", "gradient-tracking"})
    on_ranks(2, [&](Flock& flock) {
      const auto run = [&](double scale, const std::string& name) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local, {.method = method, .loss_scale = scale, .name = name});
        for (Step t = 0; t < 3; ++t) {
          trainer.zero_grad();
          trainer.scale(loss_of(*network, flock.rank(), t)).backward();
          require(trainer.step(), "an overflow");
        }
        return flat_parameters(*network).clone();
      };
      require_equal(run(1024, "scaled"), run(0, "plain"), method);
    });
}

// In the first step, where overflows usually happen.
TEST(TrainerEpochs, AnOverflowIsSkippedAndHalvesTheScale) {
  for (const char* method :
       {"dsgd-awc", "dsgd-atc", "gradient-tracking", "push-sum", "allreduce", "parameter-server"})
    on_ranks(2, [&](Flock& flock) {
      const std::string name = method;
      const bool everybody = name == "allreduce" || name == "parameter-server";
      const NetworkPtr network = make_network("mlp", flock.rank());
      const OptimizerPtr local = local_optimizer("adam").make(network->parameters());
      Trainer trainer(flock, *network, *local, {.method = method, .loss_scale = 64});
      const torch::Tensor before = flat_parameters(*network).clone();
      const bool overflows = flock.rank() == 1;
      trainer.zero_grad();
      const torch::Tensor loss = trainer.scale(loss_of(*network, flock.rank(), 0));
      (overflows ? loss * HUGE_VAL : loss).backward();
      require(trainer.step() == !(overflows || everybody), name + ": what step() says");
      require(trainer.loss_scale() == (overflows || everybody ? 32 : 64),
              fmt::format("{}: the scale is {}", name, trainer.loss_scale()));
      if (everybody) require_equal(flat_parameters(*network), before, name + " has moved");
      for (Step t = 1; t < 3; ++t) {
        trainer.zero_grad();
        trainer.scale(loss_of(*network, flock.rank(), t)).backward();
        require(trainer.step(), "an overflow");
      }
      require(torch::isfinite(flat_parameters(*network)).all().item<bool>(), name + ": not finite");
    });
}

TEST(TrainerEpochs, ARankWithoutDataKeepsTakingPart) {
  for (const char* method : {"dsgd-awc", "gradient-tracking", "allreduce", "relay-sgd"})
    for (const char* launcher : {"local_threads", "local_processes"})
      on_ranks(
          4,
          [&](Flock& flock) {
            const std::string topology = std::string(method) == "relay-sgd" ? "chain" : "ring";
            const auto run = [&](bool by_hand, const std::string& name) {
              const NetworkPtr network = make_network("mlp", flock.rank());
              const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
              Trainer trainer(flock, *network, *local,
                              {.method = method, .topology = topology, .name = name});
              Step t = 0;
              for (int epoch = 0; epoch < 2; ++epoch) {
                const std::int64_t batches = flock.rank() * 2;  // none on rank 0
                const std::int64_t all = by_hand ? 6 : trainer.begin_epoch(batches);
                require(all == 6, "the longest epoch");
                for (std::int64_t k = 0; k < batches; ++k) train_step(trainer, *network, flock.rank(), t++);
                if (by_hand)
                  for (std::int64_t k = batches; k < all; ++k) trainer.skip();
                else
                  trainer.finish_epoch();
              }
              require(trainer.steps() == 12, fmt::format("{} steps", trainer.steps()));
              return flat_parameters(*network).clone();
            };
            require_equal(run(false, "epochs"), run(true, "by hand"), method);
          },
          launcher);
}

// If batches are announced but each step takes several.
TEST(Epochs, WarnsOnceOfFewerStepsThanAnnounced) {
  testing::internal::CaptureStderr();
  on_ranks(
      2,
      [](Flock& flock) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local, {.method = "dsgd-awc", .topology = "ring"});
        Step t = 0;
        for (int epoch = 0; epoch < 2; ++epoch) {
          trainer.begin_epoch(flock.rank() == 0 ? 2 : 6);
          for (int k = 0; k < 2; ++k) train_step(trainer, *network, flock.rank(), t++);
          trainer.finish_epoch();
        }
      },
      "local_threads");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("rank 0 took"), std::string::npos) << text;
  const std::size_t at = text.find(
      "starling: rank 1 took 2 of the 6 steps of an epoch that begin_epoch() announced, and skips the rest");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1 took", at + 20), std::string::npos) << text;
}

TEST(Epochs, WarnsOnceOfMoreStepsThanAnnounced) {
  testing::internal::CaptureStderr();
  on_ranks(
      2,
      [](Flock& flock) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local, {.method = "dsgd-awc", .topology = "ring"});
        Step t = 0;
        for (const int steps : {2, 4, 4}) {
          trainer.begin_epoch(1 + flock.rank());
          for (int k = 0; k < steps; ++k) train_step(trainer, *network, flock.rank(), t++);
        }
      },
      "local_threads");
  const std::string text = testing::internal::GetCapturedStderr();
  for (const int rank : {0, 1}) {
    const std::string line = fmt::format(
        "starling: rank {} takes step 3 of an epoch of 2 steps: begin_epoch({}) was called here, and no rank "
        "announced more than 2.",
        rank, 1 + rank);
    const std::size_t at = text.find(line);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(fmt::format("rank {} takes", rank), at + line.size()), std::string::npos) << text;
  }
}

// The warning comes before the wait for ranks that have ended.
TEST(Epochs, WarnsOfAStepBeyondTheEndOfTheOtherRanks) {
  for (const char* method : {"dsgd-awc", "allreduce"}) {
    testing::internal::CaptureStderr();
    on_ranks(2, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
      Trainer trainer(flock, *network, *local, {.method = method, .topology = "ring"});
      trainer.begin_epoch(2);
      for (Step t = 0; t < 2; ++t) train_step(trainer, *network, flock.rank(), t);
      if (flock.rank() == 0) message_of<PeerLost>([&] { train_step(trainer, *network, 0, 2); });
    });
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("rank 0 takes step 3 of an epoch of 2 steps: begin_epoch(2)"), std::string::npos)
        << method << ": " << text;
  }
}

}  // namespace
}  // namespace starling::train

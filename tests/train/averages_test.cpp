#include <cmath>
#include <gtest/gtest.h>

#include "train/dense_training.h"
#include "train/trained.h"

namespace starling::train {
namespace {

TEST(Averages, AllRanksStartWithRankZerosModel) {
  on_ranks(4, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.bucket_mb = 1e-5});
    require_equal(flat_parameters(*network), flat_parameters(*make_network("mlp", 0)), "the start");
    require(trainer.parameter_count() == static_cast<std::size_t>(flat_parameters(*network).numel()),
            "count");
    require(trainer.buckets() > 1, "buckets");
  });
}

TEST(Averages, ParametersBroadcastDuringTrainingAreSentNext) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "push-sum"})
    for (const bool begun : {false, true})
      on_ranks(2, [&](Flock& flock) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        torch::optim::SGD sgd(network->parameters(), 0.1);
        Trainer trainer(flock, *network, sgd, {.method = method, .broadcast_at_start = false});
        for (Step t = 0; t < 2; ++t) train_step(trainer, *network, flock.rank(), t);
        if (begun) trainer.zero_grad();
        trainer.broadcast_parameters(1);
        require(trainer.consensus_distance() == 0, "after the broadcast");
        const torch::Tensor expected = flat_parameters(*network).clone();
        trainer.skip();
        require_close(flat_parameters(*network), expected, "after one more average", 1e-14);
        require(trainer.steps() == 3, "steps");
      });
}

// Ranks that differ only in their optimizer's state become equal.
TEST(Averages, BroadcastsOptimizerState) {
  for (const char* optimizer : {"momentum", "nesterov", "adam", "adamw", "amsgrad", "rmsprop", "adagrad"})
    on_ranks(3, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp", 0);
      const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
      Trainer trainer(flock, *network, *local, {.method = "local-sgd(tau=1000)", .bucket_mb = 1e-5});
      // Rank 2 has made fewer steps, so that step counts differ, too.
      for (Step t = 0; t < 3; ++t)
        if (flock.rank() == 2)
          trainer.skip();
        else
          train_step(trainer, *network, flock.rank(), t);
      if (flock.rank() == 1) local->param_groups()[0].options().set_lr(0.003);
      trainer.broadcast_parameters(1);
      trainer.broadcast_optimizer_state(1);
      for (Step t = 3; t < 6; ++t) train_step(trainer, *network, 0, t);
      require(trainer.consensus_distance() < 1e-14,
              fmt::format("{}: {}", optimizer, trainer.consensus_distance()));
      require(local->param_groups()[0].options().get_lr() == 0.003, "the rate");
    });
}

TEST(Averages, BroadcastOfAnOptimizerThatCannotBeSavedIsAnErrorOnAllRanks) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    Softened local(network->parameters());
    Trainer trainer(flock, *network, local, {});
    const std::string text = message_of<InvalidArgument>([&] { trainer.broadcast_optimizer_state(); });
    require(text.find("do not implement save()") != std::string::npos, text);
  });
}

TEST(Averages, ConsensusDistanceIsTheRootMeanSquareToTheMean) {
  const DenseRun run{"dsgd-awc", "ring", 4, "mlp", "momentum", 3};
  const auto models = train_densely(run);
  const torch::Tensor mean = torch::stack(models).mean(0);
  double squares = 0;
  for (const torch::Tensor& model : models) squares += (model - mean).square().sum().item<double>();
  const double expected = std::sqrt(squares / 4);
  on_ranks(4, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
    Trainer trainer(flock, *network, *local,
                    {.topology = "ring", .bucket_mb = 1e-5, .broadcast_at_start = false});
    for (Step t = 0; t < 3; ++t) train_step(trainer, *network, flock.rank(), t);
    const double distance = trainer.consensus_distance();
    require(std::abs(distance - expected) < 1e-9 * expected,
            fmt::format("{} instead of {}", distance, expected));
    {
      auto averaged = trainer.global_average();
      require_close(flat_parameters(*network), mean, "the mean");
      require(trainer.consensus_distance() == 0, "of the mean model");
      const std::string text = message_of<InvalidArgument>([&] { (void)trainer.global_average(); });
      require(text.find("average already") != std::string::npos, text);
    }
    require_close(flat_parameters(*network), models[static_cast<std::size_t>(flock.rank())], "reverted");
  });
}

TEST(Averages, TheMeanModelCanBeKept) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "push-sum", "gradient-tracking"})
    for (const bool begun : {false, true})
      on_ranks(4, [&](Flock& flock) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        torch::optim::SGD sgd(network->parameters(), 0.1);
        Trainer trainer(flock, *network, sgd, {.method = method, .topology = "ring"});
        for (Step t = 0; t < 3; ++t) train_step(trainer, *network, flock.rank(), t);
        if (begun) trainer.zero_grad();
        auto averaged = trainer.global_average();
        const torch::Tensor mean = flat_parameters(*network).clone();
        averaged.keep();
        trainer.skip();
        require_close(flat_parameters(*network), mean, method, 1e-14);
      });
  // CECA has two blocks; both are kept.
  on_ranks(6, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.method = "dsgd-atc", .topology = "ceca"});
    for (Step t = 0; t < 4; ++t) train_step(trainer, *network, flock.rank(), t);
    auto averaged = trainer.global_average();
    const torch::Tensor mean = flat_parameters(*network).clone();
    averaged.keep();
    for (int k = 0; k < 3; ++k) trainer.skip();
    require_close(flat_parameters(*network), mean, "ceca", 1e-14);
  });
}

// A round that started with the old models is repeated with the new ones, not skipped.
TEST(Averages, KeepingTheMeanDoesNotShiftTheSchedule) {
  on_ranks(4, [](Flock& flock) {
    const auto run = [&](bool begun, const std::string& name) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(flock, *network, sgd, {.name = name});
      for (Step t = 0; t < 5; ++t) {
        if (t == 3) {
          if (begun) trainer.zero_grad();
          trainer.global_average().keep();
        }
        train_step(trainer, *network, flock.rank(), t);
      }
      return flat_parameters(*network).clone();
    };
    require_equal(run(true, "begun"), run(false, "between"), "after five steps");
  });
}

TEST(Averages, RefusesAStepWhileTheParametersAreTheMean) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {});
    auto averaged = trainer.global_average();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { trainer.step(); }, [&] { trainer.zero_grad(); }, [&] { trainer.skip(); },
             [&] { loss_of(*network, 0, 0).backward(); }}) {
      const std::string text = message_of<InvalidArgument>(call);
      require(text.find("revert it or keep it first") != std::string::npos, text);
    }
    averaged.revert();
    train_step(trainer, *network, flock.rank(), 0);
  });
}

TEST(Averages, BuffersAreLocalAveragedOrBroadcast) {
  struct Normalizing : torch::nn::Module {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 4));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  };
  for (const std::string policy : {"local", "average", "broadcast"})
    on_ranks(3, [&](Flock& flock) {
      Normalizing net;
      torch::optim::SGD sgd(net.parameters(), 0.1);
      Trainer trainer(flock, net, sgd, {.buffers = policy});
      for (Step t = 0; t < 3; ++t) {
        trainer.zero_grad();
        const torch::Tensor x = scattered({8, 3}, 10 * t + flock.rank(), torch::kFloat32) + flock.rank();
        net.norm->forward(net.first->forward(x)).square().mean().backward();
        trainer.step();
      }
      const torch::Tensor own = net.norm->running_mean.clone();
      const std::int64_t tracked = net.norm->num_batches_tracked.item<std::int64_t>();
      const std::vector<float> all =
          flock.allgather(std::vector<float>(own.data_ptr<float>(), own.data_ptr<float>() + 4));
      const torch::Tensor rows = torch::tensor(all).view({3, 4});
      require(!torch::allclose(rows[0], rows[1]), "the ranks' statistics do not differ in this test");
      const torch::Tensor expected = policy == "local" ? own : policy == "average" ? rows.mean(0) : rows[0];
      {
        const auto averaged = trainer.global_average();
        require_close(net.norm->running_mean, expected, policy, 1e-6);
      }
      require_equal(net.norm->running_mean, own, "reverted");
      require(net.norm->num_batches_tracked.item<std::int64_t>() == tracked && tracked == 3, "the count");
    });
}

// In float32, the last bit of the mean of equal values may depend on the all-reduce.
TEST(Averages, ConsensusDistanceIsZeroForEqualModels) {
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
        // One of n ranks is off by 0.5 in every element of one tensor.
        const double expected =
            0.5 * std::sqrt(static_cast<double>(before.numel()) * (n - 1)) / static_cast<double>(n);
        require(std::abs(trainer.consensus_distance() / expected - 1) < 1e-5, "one model that is off");
      });
}

// Averages of equal models leave them unchanged, with any weights.
TEST(Averages, ConsensusDistanceStaysZeroWhenEqualModelsAreMixed) {
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

TEST(Averages, NamesABufferThatIsNotFinite) {
  struct Normalizing : torch::nn::Module {
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  };
  for (const std::string policy : {"average", "broadcast", "local"}) {
    testing::internal::CaptureStderr();
    on_ranks(3, [&](Flock& flock) {
      Normalizing net;
      torch::optim::SGD sgd(net.parameters(), 0.1);
      Trainer trainer(flock, net, sgd, {.buffers = policy, .broadcast_at_start = false});
      if (flock.rank() == (policy == "average" ? 1 : 0)) net.norm->running_mean[2] = NAN;
      for (int k = 0; k < 2; ++k) const auto averaged = trainer.global_average();
    });
    const std::string text = testing::internal::GetCapturedStderr();
    const std::string line =
        fmt::format("rank {}, global_average() after 0 steps: buffer norm.running_mean is not finite here",
                    policy == "average" ? 1 : 0);
    const std::size_t at = text.find(line);
    EXPECT_EQ(at != std::string::npos, policy != "local") << policy << ": " << text;
    if (policy != "local") {
      EXPECT_EQ(text.find("not finite", at + line.size()), std::string::npos) << text;
    }
  }
}

TEST(Averages, ErrorsNameTheUsersCall) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {});
    train_step(trainer, *network, flock.rank(), 0);
    if (flock.rank() == 1) {
      const std::string text = message_of<Deadlock>([&] { train_step(trainer, *network, 1, 1); });
      require(text.find("Trainer::consensus_distance(), step 1") != text.npos, text);
      return;
    }
    const std::string text = message_of<Deadlock>([&] { trainer.consensus_distance(); });
    require(text.find("rank 0 waits for rank 1 in Trainer::consensus_distance(), step 1") != text.npos, text);
    require(text.find("call each of these operations on every rank") != text.npos, text);
  });
}

}  // namespace
}  // namespace starling::train

#include <gtest/gtest.h>

#include "train/dense_training.h"
#include "train/trained.h"

// What is carried from rank to rank and from run to run.
namespace starling::training {
namespace {

TEST(State, EverybodyStartsWithRankZerosModel) {
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

TEST(State, BroadcastInMidTrainingIsWhatTravelsNext) {
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

// Ranks that differ in nothing but their optimizer's memory become alike.
TEST(State, BroadcastOfTheOptimizers) {
  for (const char* optimizer : {"momentum", "nesterov", "adam", "adamw", "amsgrad", "rmsprop", "adagrad"})
    on_ranks(3, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp", 0);
      const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
      Trainer trainer(flock, *network, *local, {.method = "local-sgd(tau=1000)", .bucket_mb = 1e-5});
      // Rank 2 is behind, so that counts of steps differ, too.
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

TEST(State, BroadcastOfAnOptimizerThatCannotBeSavedIsAnErrorEverywhere) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    Softened local(network->parameters());
    Trainer trainer(flock, *network, local, {});
    const std::string text = message_of<InvalidArgument>([&] { trainer.broadcast_optimizer_state(); });
    require(text.find("do not implement save()") != std::string::npos, text);
  });
}

// Loading moves parameters to other memory behind the trainer's back.
TEST(State, AModuleLoadedInMidTrainingIsTrainedOn) {
  for (const bool own_zero : {false, true})
    on_ranks(2, [&](Flock& flock) {
      const auto run = [&](bool load, const std::string& name) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        torch::optim::SGD sgd(network->parameters(), 0.1);
        Trainer trainer(flock, *network, sgd, {.name = name});
        for (Step t = 0; t < 4; ++t) {
          if (t == 2 && load) {
            std::stringstream text;
            torch::serialize::OutputArchive out;
            make_network("mlp", 9)->save(out);
            out.save_to(text);
            torch::serialize::InputArchive in;
            in.load_from(text);
            network->load(in);
          } else if (t == 2) {
            set_parameters(*network, flat_parameters(*make_network("mlp", 9)));
          }
          if (own_zero)
            network->zero_grad();
          else
            trainer.zero_grad();
          loss_of(*network, flock.rank(), t).backward();
          trainer.step();
        }
        return flat_parameters(*network).clone();
      };
      require_equal(run(true, "loaded"), run(false, "copied"), fmt::format("own zero_grad: {}", own_zero));
    });
}

TEST(State, ASavedRunGoesOnBitForBit) {
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
      // Another order of bringing it back: before the trainer is made, and after.
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
        named.bucket_mb = 4;  // not part of what is saved
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

TEST(State, ConsensusDistanceIsTheRootMeanSquareToTheMean) {
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

TEST(State, TheMeanModelCanBeKept) {
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
  // Of CECA both blocks.
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

// A round that had begun with the old models is done again with the new ones, not left out.
TEST(State, KeepingTheMeanDoesNotShiftTheRounds) {
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

TEST(State, NoStepWhileTheParametersAreTheMean) {
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

TEST(State, BuffersAreLocalAveragedOrRankZerosInEvaluation) {
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

}  // namespace
}  // namespace starling::training

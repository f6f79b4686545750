#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "kernel/fake_device.h"
#include "record/folder.h"
#include "starling/flock/join_threads.h"
#include "starling/method/saved_state.h"
#include "starling/record/checkpoint_folder.h"
#include "train/trained.h"

// Models that stay on a device, simulated by a FakeDevice (train/device_tensors.h). The other suites also run
// there: see train.cuda in tests/CMakeLists.txt.
namespace starling::train {
namespace {

/// Runs on a simulated device; `kind` is "_threads" or "_processes".
void on_device(Rank size, const FlockBody& body, const std::string& kind = "_threads") {
  pretend_tensors_are_on_device(true);
  for (const Launcher& launcher : inline_device_launchers()) {
    if (!launcher.name.ends_with(kind)) continue;
    const auto ends = launcher.run(size, [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(20s);
      body(flock);
    });
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
  pretend_tensors_are_on_device(false);
}

struct DeviceRun {
  std::string method;
  std::string topology = "ring";
  std::string optimizer = "momentum";
  std::string message = "float32";
  double clip_norm = 0;
  bool eager = false;
  bool master_weights = false;
};

torch::Tensor train_run(const Flock& flock, const DeviceRun& run, torch::Dtype type) {
  return train(flock, {.options = {.method = run.method,
                                   .topology = run.topology,
                                   .bucket_mb = 1e-4,
                                   .message = run.message,
                                   .clip_norm = run.clip_norm,
                                   .eager = run.eager,
                                   .master_weights = run.master_weights},
                       .network = "conv",
                       .optimizer = run.optimizer,
                       .steps = 7,
                       .type = type});
}

void check_bits_of_host(const std::vector<DeviceRun>& runs, const std::vector<torch::Dtype>& types) {
  for (const DeviceRun& run : runs)
    for (const torch::Dtype type : types) {
      std::vector<torch::Tensor> host(3);
      on_ranks(3, [&](Flock& flock) {
        host[static_cast<std::size_t>(flock.rank())] = train_run(flock, run, type);
      });
      on_device(3, [&](Flock& flock) {
        require_equal(
            train_run(flock, run, type), host[static_cast<std::size_t>(flock.rank())],
            fmt::format("{} on {} with {} in {}", run.method, run.topology, run.optimizer, run.message));
      });
    }
}

TEST(TrainerDevice, TrainsWithTheBitsOfTheHost) {
  const std::vector<DeviceRun> runs = {
      {"dsgd-awc"},
      {"dsgd-awc", "one-peer-exponential", "adam"},
      {"dsgd-awc", "exponential", "adamw", "float32", 0.1},
      {"dsgd-awc", "ring", "nesterov", "bfloat16"},
      {"dsgd-awc", "ring", "momentum", "int8"},
      {"dsgd-awc", "ring", "momentum", "float32", 0, true},
      {"dsgd-awc", "ring", "rmsprop"},
      {"dsgd-atc", "one-peer-exponential"},
      {"allreduce", "ring", "adam"},
      {"gradient-tracking", "ring", "sgd"},
      {"push-sum", "exponential"},
      {"relay-sgd", "chain"},
      {"choco(codec=top-k)", "ring"},
      {"qadam", "ring", "adam"},
      {"powersgd(rank=1)"},
      {"powersgd", "ring", "adamw", "float32", 0.1},
      {"lag", "ring", "sgd"},
      {"local-sgd(tau=2)"},
      {"exact-diffusion", "ring", "sgd"},
  };
  check_bits_of_host(runs, {torch::kFloat32, torch::kFloat64});
}

TEST(TrainerDevice, TrainsShortParametersWithTheBitsOfTheHost) {
  check_bits_of_host({{"dsgd-awc"},
                      {"dsgd-awc", "ring", "adamw"},
                      {"dsgd-atc", "one-peer-exponential", "adam"},
                      {"allreduce", "ring", "nesterov"},
                      {"accum-adam(s=2)", "ring", "adam"},
                      {"powersgd(rank=1)"},
                      {"local-sgd(tau=2)"}},
                     {torch::kBFloat16});
}

// Clipping scales gradients in place, which rounds short ones.
TEST(TrainerDevice, ClipsShortParametersAsTheHostExceptForRounding) {
  const DeviceRun run{"dsgd-awc", "ring", "momentum", "float32", 0.1};
  std::vector<torch::Tensor> host(3);
  on_ranks(3, [&](Flock& flock) {
    host[static_cast<std::size_t>(flock.rank())] = train_run(flock, run, torch::kBFloat16);
  });
  on_device(3, [&](Flock& flock) {
    const torch::Tensor found = train_run(flock, run, torch::kBFloat16);
    const torch::Tensor& expected = host[static_cast<std::size_t>(flock.rank())];
    require(torch::allclose(found, expected, 0.02, 0.01), "more than rounding");
  });
}

TEST(TrainerDevice, GivesTheNormBeforeClipping) {
  on_device(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    const OptimizerPtr optimizer = local_optimizer("sgd").make(network->parameters());
    Trainer trainer(flock, *network, *optimizer, {.topology = "ring", .clip_norm = 1e-3});
    for (Step t = 0; t < 2; ++t) {
      trainer.zero_grad();
      loss_of(*network, flock.rank(), t).backward();
      double squares = 0;
      for (const torch::Tensor& one : network->parameters())
        squares += one.grad().to(torch::kFloat64).square().sum().item<double>();
      trainer.step();
      require(std::abs(trainer.gradient_norm() / std::sqrt(squares) - 1) < 1e-6, "the norm");
      squares = 0;
      for (const torch::Tensor& one : network->parameters())
        squares += one.grad().to(torch::kFloat64).square().sum().item<double>();
      require(std::sqrt(squares) < 1.001e-3, "the gradients are clipped");
    }
  });
}

// On a device, backward makes gradients of its own, in any memory; missing ones are zeros for other ranks.
TEST(TrainerDevice, TakesGradientsFromWhereBackwardPutThem) {
  for (const std::string method : {"dsgd-awc", "allreduce"}) {
    const auto run = [&](Flock& flock) {
      const NetworkPtr network = make_network("conv", flock.rank());
      const OptimizerPtr optimizer = local_optimizer("momentum").make(network->parameters());
      Trainer trainer(flock, *network, *optimizer, {.method = method, .topology = "ring", .bucket_mb = 1e-4});
      for (Step t = 0; t < 5; ++t) {
        trainer.zero_grad();
        std::size_t i = 0;
        for (torch::Tensor& one : network->parameters()) {
          torch::Tensor gradient = torch::full_like(one, 0.1 * static_cast<double>(flock.rank() + t));
          if (i % 3 == 1 && one.dim() > 1) gradient = gradient.transpose(0, 1).contiguous().transpose(0, 1);
          if (i++ % 4 == 3 && flock.rank() == 0) continue;  // has none
          one.mutable_grad() = gradient;
        }
        trainer.step();
      }
      return flat_parameters(*network).clone();
    };
    std::vector<torch::Tensor> host(3);
    on_ranks(3, [&](Flock& flock) { host[static_cast<std::size_t>(flock.rank())] = run(flock); });
    on_device(3, [&](Flock& flock) {
      require_equal(run(flock), host[static_cast<std::size_t>(flock.rank())], method);
    });
  }
}

TEST(TrainerDevice, TrainsMasterWeightsWithTheBitsOfTheHost) {
  check_bits_of_host({{"dsgd-awc", "ring", "momentum", "float32", 0, false, true},
                      {"dsgd-awc", "ring", "adamw", "bfloat16", 0.1, false, true},
                      {"dsgd-awc", "ring", "momentum", "int8", 0, false, true},
                      {"dsgd-awc", "ring", "momentum", "float32", 0, true, true},
                      {"dsgd-atc", "one-peer-exponential", "adam", "float32", 0, false, true},
                      {"allreduce", "ring", "nesterov", "float32", 0, false, true},
                      {"push-sum", "exponential", "momentum", "float32", 0, false, true},
                      {"accum-adam(s=2)", "ring", "adam", "float32", 0, false, true}},
                     {torch::kBFloat16});
}

// Backward gathers a bucket after its last gradient; others may come before, after, or not at all.
TEST(TrainerDevice, AddsUpGradientsOfPartsOfTheModel) {
  for (const std::string method : {"dsgd-awc", "allreduce"}) {
    const auto run = [&](Flock& flock) {
      const NetworkPtr network = make_network("conv", flock.rank());
      const OptimizerPtr optimizer = local_optimizer("momentum").make(network->parameters());
      Trainer trainer(flock, *network, *optimizer,
                      {.method = method, .topology = "ring", .bucket_mb = 1e-4, .accumulation = 0});
      for (Step t = 0; t < 6; ++t) {
        if (t != 3) trainer.zero_grad();  // then gradients add up
        const auto part = [&](std::size_t i) {
          network->parameters()[i].square().sum().backward();
          trainer.finish_gradients();
        };
        if (t % 2 == 0) part(0);
        if (t != 4) {
          loss_of(*network, flock.rank(), t).backward();
          trainer.finish_gradients();
        }
        if (t % 3 != 0) part(1);
        trainer.step();
      }
      return flat_parameters(*network).clone();
    };
    std::vector<torch::Tensor> host(3);
    on_ranks(3, [&](Flock& flock) { host[static_cast<std::size_t>(flock.rank())] = run(flock); });
    on_device(3, [&](Flock& flock) {
      require_equal(run(flock), host[static_cast<std::size_t>(flock.rank())], method);
    });
  }
}

// Steps end one rank after another, so that methods that wait for nobody do the same every time.
torch::Tensor train_in_turns(Flock& flock, const std::string& method) {
  const NetworkPtr network = make_network("conv", flock.rank());
  const OptimizerPtr optimizer = local_optimizer("momentum").make(network->parameters());
  Trainer trainer(flock, *network, *optimizer, {.method = method, .topology = "ring", .bucket_mb = 1e-4});
  for (Step t = 0; t < 6; ++t) {
    trainer.zero_grad();
    loss_of(*network, flock.rank(), t).backward();
    for (Rank turn = 0; turn < flock.size(); ++turn) {
      flock.barrier("turn");
      if (turn == flock.rank()) trainer.step();
    }
    flock.barrier("turn");
  }
  trainer.settle();
  return flat_parameters(*network).clone();
}

TEST(TrainerDevice, MethodsOverWindowsStayThere) {
  for (const std::string method : {"win-put", "async-push-sum", "ad-psgd"}) {
    std::vector<torch::Tensor> host(3);
    on_ranks(3, [&](Flock& flock) {
      host[static_cast<std::size_t>(flock.rank())] = train_in_turns(flock, method);
    });
    on_device(3, [&](Flock& flock) {
      require_equal(train_in_turns(flock, method), host[static_cast<std::size_t>(flock.rank())], method);
      const std::string refused = message_of<InvalidArgument>(
          [&] { flock.window("trainer/0/window").put_value(std::vector<double>(1)); });
      require(refused.find("in CUDA memory, as this window's tensor has") != refused.npos, refused);
    });
  }
}

TEST(TrainerDevice, RanksWhoseModelsLieInDifferentMemoryAreToldSo) {
  on_device(
      2,
      [](Flock& flock) {
        pretend_tensors_are_on_device(flock.rank() == 1);
        const NetworkPtr network = make_network("mlp");
        const OptimizerPtr optimizer = local_optimizer("sgd").make(network->parameters());
        const std::string text =
            message_of<InvalidArgument>([&] { Trainer trainer(flock, *network, *optimizer, {}); });
        require(text.find("models are exchanged in: host memory on rank 0, CUDA memory on rank 1") !=
                    std::string::npos,
                text);
      },
      "_processes");
}

// Both ranks are threads, which share a device of this size. The model has 4 MB, each rank's messages have 8.
std::vector<std::string> train_with_memory(std::size_t memory) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>(
      kernel::FakeDeviceOptions{.memory = memory, .inline_execution = true}));
  pretend_tensors_are_on_device(true);
  std::vector<std::string> errors(2);
  {
    std::vector<std::jthread> ranks;
    for (Flock& one : flock::join_as_threads(2))
      ranks.emplace_back([&errors, flock = std::move(one)]() mutable {
        flock.set_timeout(20s);
        torch::nn::Linear net(1000, 1000);
        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
        try {
          Trainer trainer(flock, *net, sgd, {.method = "dsgd-awc", .topology = "ring"});
          for (int step = 0; step < 3; ++step) {
            trainer.zero_grad();
            net->forward(torch::ones({1, 1000})).sum().backward();
            trainer.step();
          }
          trainer.settle();
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(flock.rank())] = error.what();
        }
      });
  }
  pretend_tensors_are_on_device(false);
  kernel::set_device(nullptr);
  return errors;
}

TEST(TrainerDevice, WhereMemoryForMessagesIsMissingAllRanksAreToldBeforeTheFirstStep) {
  EXPECT_EQ(train_with_memory(20'000'000), (std::vector<std::string>{"", ""}));
  for (const std::size_t memory : {1'000'000, 10'000'000}) {
    const auto errors = train_with_memory(memory);
    EXPECT_THAT(errors[0], testing::ContainsRegex("the messages of a training step need 80080[0-9]* bytes of "
                                                  "memory of device 0, and [0-9]+ are free"));
    EXPECT_EQ(errors[1], errors[0]);
    if (memory == 10'000'000) {
      EXPECT_THAT(errors[0], testing::StartsWith("rank "));
    }
  }
}

TEST(TrainerDevice, ContinuesBitForBitFromACheckpoint) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("starling-device-{}", getpid());
  const Recipe recipe{
      .options = {.method = "gradient-tracking", .topology = "ring"}, .network = "mlp", .optimizer = "adam"};
  const auto run = [&](Flock& flock, Step from, Step to) {
    const NetworkPtr network = make_network(recipe.network, flock.rank());
    const OptimizerPtr optimizer = local_optimizer(recipe.optimizer).make(network->parameters());
    Trainer trainer(flock, *network, *optimizer, recipe.options);
    if (from > 0) require(trainer.resume(folder).has_value() && trainer.steps() == from, "not resumed");
    for (Step t = from; t < to; ++t) train_step(trainer, *network, flock.rank(), t);
    if (from == 0) trainer.save(folder);
    return flat_parameters(*network).clone();
  };
  on_device(2, [&](Flock& flock) { run(flock, 0, 4); });
  on_device(2, [&](Flock& flock) {
    const torch::Tensor resumed = run(flock, 4, 8);
    Recipe whole = recipe;
    whole.steps = 8;
    whole.options.name = "whole";
    require_equal(resumed, train(flock, whole), "not the uninterrupted run's bits");
  });
  std::filesystem::remove_all(folder);
}

TEST(TrainerDevice, SavesInTheBackgroundWhatItSavesAtOnce) {
  const RecordFolder place;
  on_device(2, [&](Flock& flock) {
    const NetworkPtr network = make_network("conv", flock.rank());
    const OptimizerPtr optimizer = local_optimizer("adam").make(network->parameters());
    Trainer trainer(flock, *network, *optimizer, {.method = "gradient-tracking", .topology = "ring"});
    for (Step t = 0; t < 3; ++t) train_step(trainer, *network, flock.rank(), t);
    SavedParts parts;
    trainer.save_parts(parts);
    for (const StatePart& part : parts.parts())
      if (part.name.starts_with("parameters/") || part.name.find("/optimizer/m") != std::string::npos)
        require(part.device.has_value(), part.name + " is not copied by the device");
    trainer.save(place.path("at once"));
    trainer.save(place.path("background"), {.background = true});
    train_step(trainer, *network, flock.rank(), 3);
  });
  const CheckpointFolder at_once(place.path("at once")), background(place.path("background"));
  for (const Rank rank : {0, 1}) {
    const CheckpointFile expected = at_once.open(at_once.find(3), rank);
    const CheckpointFile file = background.open(background.find(3), rank);
    ASSERT_EQ(file.parts().size(), expected.parts().size());
    for (const auto& part : expected.parts())
      EXPECT_EQ(file.read(part.name), expected.read(part.name)) << part.name;
  }
}

TEST(TrainerDevice, EvaluatesTheMeanModelAndReturnsToItsOwn) {
  on_device(3, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    const OptimizerPtr optimizer = local_optimizer("sgd").make(network->parameters());
    Trainer trainer(flock, *network, *optimizer, {.method = "dsgd-awc", .topology = "ring"});
    for (Step t = 0; t < 3; ++t) train_step(trainer, *network, flock.rank(), t);
    const torch::Tensor own = flat_parameters(*network).clone();
    require(trainer.consensus_distance() > 0, "models that differ have a distance");
    {
      const auto mean = trainer.global_average();
      require(trainer.consensus_distance() < 1e-12, "the mean model is everybody's");
    }
    require_equal(flat_parameters(*network), own, "reverted");
    trainer.global_average().keep();
    require(trainer.consensus_distance() < 1e-12, "kept");
    trainer.broadcast_parameters(1);
    trainer.broadcast_optimizer_state(1);
    train_step(trainer, *network, flock.rank(), 3);
  });
}

}  // namespace
}  // namespace starling::train

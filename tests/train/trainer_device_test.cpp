#include <gtest/gtest.h>

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
                      {"dsgd-awc", "ring", "adamw", "float32", 0.1},
                      {"dsgd-atc", "one-peer-exponential", "adam"},
                      {"allreduce", "ring", "nesterov"},
                      {"accum-adam(s=2)", "ring", "adam"},
                      {"powersgd(rank=1)"},
                      {"local-sgd(tau=2)"}},
                     {torch::kBFloat16});
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

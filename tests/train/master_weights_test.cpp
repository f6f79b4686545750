#include <gtest/gtest.h>

#include "train/trained.h"

// Parameters of 16 bits that are trained in float32.
namespace starling::train {
namespace {

torch::Tensor masters_of(const Trainer& trainer) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& x : trainer.flat_parameters()) all.push_back(x.flatten());
  return torch::cat(all).clone();
}

/// One parameter of ones, whose gradient is one.
struct Ones : torch::nn::Module {
  explicit Ones(torch::Dtype type = torch::kBFloat16) {
    value = register_parameter("value", torch::ones({64}, type));
  }
  void backward() const { value.sum().backward(); }
  torch::Tensor value;
};

/// A trainer of Ones.
struct OnesRun {
  OnesRun(const Flock& flock, double lr, TrainerOptions options = {.method = "dsgd-awc"},
          torch::Dtype type = torch::kBFloat16)
      : net(type), sgd(net.parameters(), torch::optim::SGDOptions(lr)) {
    options.master_weights = true;
    trainer.emplace(flock, net, sgd, options);
  }
  void step() {
    trainer->zero_grad();
    net.backward();
    trainer->step();
  }
  torch::Tensor master() const { return trainer->flat_parameters()[0].narrow(0, 0, 64).clone(); }
  void check_rounded(const std::string& when) const {
    require_equal(net.value.detach(), master().to(net.value.scalar_type()), "rounded " + when);
  }

  Ones net;
  torch::optim::SGD sgd;
  std::optional<Trainer> trainer;
};

// Each step is below the precision of bfloat16 at one.
TEST(MasterWeights, SmallStepsAddUp) {
  on_ranks(2, [](Flock& flock) {
    for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "local-sgd(tau=4)"}) {
      OnesRun run(flock, 1e-4, {.method = method, .name = method});
      for (int step = 0; step < 100; ++step) {
        run.step();
        run.check_rounded(method);
      }
      require_close(run.master(), torch::full({64}, 0.99F), method, 1e-5);
      require(run.net.value.scalar_type() == torch::kBFloat16 && run.net.value[0].item<float>() < 1, method);
    }
  });
}

// The same arithmetic by hand, with autograd on the rounded parameters.
TEST(MasterWeights, OneRankTrainsAsByHand) {
  for (const torch::Dtype type : {torch::kBFloat16, torch::kFloat16})
    on_ranks(1, [&](Flock& flock) {
      OnesRun run(flock, 0.03, {.method = "dsgd-awc"}, type);
      torch::Tensor master = torch::ones({64});
      const torch::Tensor factors = torch::linspace(0.5, 1.5, 64).to(type);
      for (int step = 0; step < 20; ++step) {
        run.trainer->zero_grad();
        (run.net.value * factors).sum().backward();
        run.trainer->step();
        master -= torch::tensor(0.03F) * factors.to(torch::kFloat32);
        require_equal(run.master(), master, "x");
        run.check_rounded("by hand");
      }
    });
}

TEST(MasterWeights, ChangesByTheProgramCountAndOthersKeepTheirBits) {
  on_ranks(2, [](Flock& flock) {
    OnesRun run(flock, 1e-4);
    for (int step = 0; step < 5; ++step) run.step();
    const torch::Tensor before = run.master();
    run.sgd.param_groups()[0].options().set_lr(0);
    {
      const torch::NoGradGuard no_grad;
      run.net.value[3] = 5;
    }
    run.step();
    torch::Tensor expected = before.clone();
    expected[3] = 5;
    require_equal(run.master(), expected, "after a change of one element");
    run.check_rounded("after a change");
  });
}

TEST(MasterWeights, AveragesAreExactAndRevertible) {
  on_ranks(2, [](Flock& flock) {
    OnesRun run(flock, flock.rank() == 0 ? 1e-4 : 3e-4,
                {.method = "local-sgd(tau=1000)", .per_rank_settings = true});
    for (int step = 0; step < 10; ++step) run.step();
    const torch::Tensor own = run.master(), rounded = run.net.value.detach().clone();
    Trainer::Averaged average = run.trainer->global_average();
    require_close(run.master(), torch::full({64}, 0.998F), "the average", 1e-6);
    run.check_rounded("average");
    average.revert();
    require_equal(run.master(), own, "reverted");
    require_equal(run.net.value.detach(), rounded, "reverted parameters");
    run.trainer->global_average().keep();
    run.step();
    require(run.trainer->consensus_distance() < 1e-3, "kept");
  });
}

TEST(MasterWeights, MessagesMayHaveFewerBits) {
  on_ranks(3, [](Flock& flock) {
    for (const char* message : {"bfloat16", "int8"}) {
      const NetworkPtr network = make_network("conv", flock.rank(), torch::kBFloat16);
      const OptimizerPtr adam = local_optimizer("adamw").make(network->parameters());
      Trainer trainer(flock, *network, *adam,
                      {.topology = "ring", .message = message, .master_weights = true, .name = message});
      for (Step t = 0; t < 5; ++t) train_step(trainer, *network, flock.rank(), t);
      require(masters_of(trainer).scalar_type() == torch::kFloat32, "float32");
      require(torch::isfinite(masters_of(trainer)).all().item<bool>(), "finite");
    }
  });
}

TEST(MasterWeights, RefusesWhatCannotHaveThem) {
  on_ranks(1, [](Flock& flock) {
    Ones wide(torch::kFloat32), narrow;
    torch::optim::SGD sgd(wide.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::RMSprop rmsprop(narrow.parameters());
    const auto refusal = [&](torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
      return message_of<InvalidArgument>(
          [&] { Trainer(flock, module, optimizer, {.master_weights = true}); });
    };
    const std::string none = refusal(wide, sgd), other = refusal(narrow, rmsprop);
    require(none.find("for parameters of float16 or bfloat16") != none.npos, none);
    require(other.find("for SGD, Adam and AdamW") != other.npos, other);
  });
}

}  // namespace
}  // namespace starling::train

#include <gtest/gtest.h>

#include "train/odd_network.h"

// PyTorch's loop as users write it: step() uses the contents of .grad, and a step that cannot be made is an
// error.
namespace starling::train {
namespace {

const std::vector<std::string> kLoopMethods = {
    "dsgd-awc", "dsgd-atc", "gradient-tracking", "allreduce", "parameter-server", "push-sum", "local-sgd"};
bool is_central(const std::string& method) {
  return method == "allreduce" || method == "parameter-server";
}

/// A trained network, and two networks of plain torch as reference.
struct Loop {
  explicit Loop(const Flock& flock, TrainerOptions options, const std::string& optimizer = "sgd")
      : network(make_network("mlp")),
        local(local_optimizer(optimizer).make(network->parameters())),
        trainer(flock, *network, *local, std::move(options)),
        rank(flock.rank()) {}

  void backward(Step t) { loss_of(*network, rank, t).backward(); }

  NetworkPtr network;
  OptimizerPtr local;
  Trainer trainer;
  Rank rank;
};

/// The distance that the parameters have moved.
double way(const torch::Tensor& before, Network& network) {
  return (flat_parameters(network) - before).norm().item<double>();
}

TEST(TrainingStep, UsesGradientsAssignedByHand) {
  for (const std::string& method : kLoopMethods)
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method, .topology = "complete"});
      for (const bool in_place : {false, true}) {
        loop.trainer.zero_grad();
        const torch::Tensor before = flat_parameters(*loop.network).clone();
        for (torch::Tensor& one : loop.network->parameters()) {
          if (in_place && one.grad().defined())
            one.mutable_grad().fill_(flock.rank() + 1);
          else
            one.mutable_grad() = torch::full_like(one, flock.rank() + 1);
        }
        loop.trainer.step();
        // The mean of ones and twos, times the rate of 0.1; without an average, the own value.
        const bool alone = method == "local-sgd" || (method == "dsgd-awc" && !in_place);
        const double expected = alone ? 0.1 * (flock.rank() + 1) : 0.15;
        require_close(before - flat_parameters(*loop.network), torch::full_like(before, expected), method);
      }
    });
}

TEST(TrainingStep, UsesGradientsClippedByTorch) {
  for (const std::string& method : kLoopMethods)
    for (const double bucket_mb : {4.0, 1e-5})
      on_ranks(2, [&](Flock& flock) {
        Loop loop(flock, {.method = method, .topology = "complete", .bucket_mb = bucket_mb});
        for (Step t = 0; t < 3; ++t) {
          loop.trainer.zero_grad();
          loop.backward(t);
          const torch::Tensor before = flat_parameters(*loop.network).clone();
          torch::nn::utils::clip_grad_norm_(loop.network->parameters(), 1e-3);
          loop.trainer.step();
          const double moved = way(before, *loop.network);
          require(moved < 4e-4, fmt::format("{} step {}: moved by {}", method, t, moved));
          require(moved > 1e-5, fmt::format("{} step {}: moved by {}", method, t, moved));
        }
      });
}

// backward() returns when gradients are averaged: the loop is DDP's, to the digit.
TEST(TrainingStep, AllreduceClipsTheMeanGradientAsDdpDoes) {
  for (const char* method : {"allreduce", "powersgd(rank=64)"})
    on_ranks(2, [&](Flock& flock) {
      Pair pair = mlp_pair("momentum");
      pair.start_equal();
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5}, "momentum");
      for (Step t = 0; t < 4; ++t) {
        loop.trainer.zero_grad();
        loop.backward(t);
        pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
        pair.mix_gradients();
        require_close(flat_gradients(*loop.network), flat_gradients(pair.network(flock.rank())), "gradients");
        torch::nn::utils::clip_grad_norm_(loop.network->parameters(), 0.05);
        for (const Rank r : {0, 1}) torch::nn::utils::clip_grad_norm_(pair.network(r).parameters(), 0.05);
        loop.trainer.step();
        pair.step();
        require_close(flat_parameters(*loop.network), flat_parameters(pair.network(flock.rank())), method);
      }
    });
}

TEST(TrainingStep, WithoutZeroGradGradientsAddUp) {
  for (const std::string& method : kLoopMethods)
    on_ranks(2, [&](Flock& flock) {
      const bool central = is_central(method);
      if (!central && method != "dsgd-atc") return;
      Pair pair = mlp_pair("momentum");
      pair.start_equal();
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5}, "momentum");
      for (Step t = 0; t < 4; ++t) {
        loop.backward(t);
        loop.trainer.step();
        for (const Rank r : {0, 1}) loss_of(pair.network(r), r, t).backward();
        if (central) pair.mix_gradients();
        pair.step();
        if (!central) pair.mix();
        require_close(flat_parameters(*loop.network), flat_parameters(pair.network(flock.rank())),
                      fmt::format("{} step {}", method, t));
      }
    });
}

TEST(TrainingStep, ASecondStepUsesTheGradientAgain) {
  for (const std::string& method : kLoopMethods)
    on_ranks(2, [&](Flock& flock) {
      const bool central = is_central(method);
      if (!central && method != "dsgd-atc" && method != "dsgd-awc") return;
      Pair pair = mlp_pair("momentum");
      pair.start_equal();
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5}, "momentum");
      for (Step t = 0; t < 2; ++t) {
        loop.trainer.zero_grad();
        loop.backward(t);
        pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
        if (central) pair.mix_gradients();
        for (int twice = 0; twice < 2; ++twice) {
          loop.trainer.step();
          if (method == "dsgd-awc") pair.mix();
          pair.step();
          if (method == "dsgd-atc") pair.mix();
        }
        require_close(flat_parameters(*loop.network), flat_parameters(pair.network(flock.rank())),
                      fmt::format("{} step {}", method, t));
      }
    });
}

// Any number of backward passes: methods that average gradients do so in each.
TEST(TrainingStep, AnyNumberOfBackwardPassesAddsUp) {
  for (const char* method : {"dsgd-atc", "allreduce", "bytegrad", "parameter-server"})
    on_ranks(2, [&](Flock& flock) {
      const bool central = std::string(method) != "dsgd-atc";
      Pair pair = mlp_pair("sgd");
      pair.start_equal();
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5, .accumulation = 0});
      for (Step t = 0; t < 3; ++t) {
        loop.trainer.zero_grad();
        for (Step k = 0; k <= t; ++k) loop.backward(10 * t + k);
        loop.trainer.step();
        pair.backward([&](Network& one, Rank r) {
          torch::Tensor sum = loss_of(one, r, 10 * t);
          for (Step k = 1; k <= t; ++k) sum = sum + loss_of(one, r, 10 * t + k);
          return sum;
        });
        if (central) pair.mix_gradients();
        pair.step();
        if (!central) pair.mix();
        require_close(flat_parameters(*loop.network), flat_parameters(pair.network(flock.rank())),
                      fmt::format("{} step {}", method, t), std::string(method) == "bytegrad" ? 0.05 : 1e-9);
      }
    });
}

// One rank accumulates two passes in its first step, the other in its second: their sums must not be
// averaged.
TEST(TrainingStep, GradientsOfDifferentStepsAreNotAveraged) {
  for (const char* method : {"allreduce", "bytegrad"})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method, .accumulation = 0});
      const std::string text = message_of<Mismatch>([&] {
        for (Step t = 0; t < 2; ++t) {
          loop.trainer.zero_grad();
          for (Step k = 0; k < (t == flock.rank() ? 2 : 1); ++k) loop.backward(10 * t + k);
          loop.trainer.step();
        }
      });
      require(text.find("call backward() and step() equally often on all ranks") != std::string::npos, text);
    });
}

TEST(TrainingStep, TorchsOwnZeroGradWorks) {
  for (const char* method : {"dsgd-awc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      const auto run = [&](bool torchs, const std::string& name) {
        Loop loop(flock, {.method = method, .name = name}, "momentum");
        for (Step t = 0; t < 3; ++t) {
          if (torchs)
            loop.local->zero_grad();
          else
            loop.trainer.zero_grad();
          loop.backward(t);
          loop.trainer.step();
        }
        return flat_parameters(*loop.network).clone();
      };
      require_equal(run(true, "torch's"), run(false, "ours"), method);
    });
}

TEST(TrainingStep, AStepOfTheOptimizerAloneIsAnErrorAtTheNextCall) {
  for (const char* method : {"dsgd-awc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method, .accumulation = 0});
      loop.trainer.zero_grad();
      loop.backward(0);
      loop.local->step();
      for (const bool zero : {true, false}) {
        const std::string text = message_of<InvalidArgument>([&] {
          if (zero)
            loop.trainer.zero_grad();
          else
            loop.backward(1);
        });
        require(text.find("changed after backward(), and no step() of the trainer") != std::string::npos,
                text);
      }
      loop.trainer.parameters_changed();  // intended
      loop.trainer.step();
      loop.trainer.zero_grad();
    });
}

// If some parameter gets no gradient, averaging waits for step(): a change before step() would be lost.
TEST(TrainingStep, ChangingGradientsThatAreBeingSentIsAnError) {
  for (const bool finish : {false, true})
    on_ranks(2, [&](Flock& flock) {
      OddNetwork network(0);
      torch::optim::SGD sgd(network.parameters(), 0.1);
      Trainer trainer(flock, network, sgd, {.method = "allreduce", .bucket_mb = 1e-5});
      trainer.zero_grad();
      loss_of(network, flock.rank(), 0).backward();
      const torch::Tensor before = flat_parameters(network).clone();
      if (finish) trainer.finish_gradients();
      torch::nn::utils::clip_grad_norm_(network.parameters(), 1e-3);
      if (finish) {
        trainer.step();
        require(way(before, network) < 2e-4, "not clipped");
        return;
      }
      const std::string text = message_of<InvalidArgument>([&] { trainer.step(); });
      require(text.find("computed none for extra") != std::string::npos, text);
      require(text.find("finish_gradients()") != std::string::npos, text);
    });
}

TEST(TrainingStep, ChangingGradientsThatEagerHasUsedIsAnError) {
  on_ranks(2, [&](Flock& flock) {
    Loop loop(flock, {.eager = true});
    loop.trainer.zero_grad();
    loop.backward(0);
    torch::nn::utils::clip_grad_norm_(loop.network->parameters(), 1e-3);
    const std::string text = message_of<InvalidArgument>([&] { loop.trainer.step(); });
    require(text.find("eager has used it inside backward()") != std::string::npos, text);
  });
}

TEST(TrainingStep, LossScalingNeedsZeroGradBetweenSteps) {
  on_ranks(1, [&](Flock& flock) {
    Loop loop(flock, {.loss_scale = 8});
    loop.trainer.zero_grad();
    loop.trainer.scale(loss_of(*loop.network, 0, 0)).backward();
    loop.trainer.step();
    const std::string text = message_of<InvalidArgument>([&] { loop.backward(1); });
    require(text.find("zero_grad()") != std::string::npos && text.find("scale") != std::string::npos, text);
  });
}

TEST(TrainingStep, SkipAfterTheGradientsWereAveragedIsAnError) {
  on_ranks(2, [&](Flock& flock) {
    Loop loop(flock, {.method = "allreduce"});
    loop.trainer.zero_grad();
    loop.backward(0);
    const std::string text = message_of<InvalidArgument>([&] { loop.trainer.skip(); });
    require(text.find("instead of backward()") != std::string::npos, text);
    loop.trainer.step();
  });
}

TEST(TrainingStep, GradientNormEqualsTorchsWithoutClipping) {
  for (const char* method : {"dsgd-atc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5});
      for (Step t = 0; t < 2; ++t) {
        loop.trainer.zero_grad();
        if (t > 0) {
          const std::string text = message_of<InvalidArgument>([&] { loop.trainer.gradient_norm(); });
          require(text.find("before zero_grad()") != std::string::npos, text);
        }
        loop.backward(t);
        const double norm = flat_gradients(*loop.network).norm().item<double>();
        loop.trainer.step();
        require(norm > 0 && std::abs(loop.trainer.gradient_norm() - norm) < 1e-9 * norm,
                fmt::format("{}, not {}", loop.trainer.gradient_norm(), norm));
      }
    });
}

TEST(TrainingStep, ParametersUnfrozenLaterAreAnErrorUntilTheTrainerIsMadeAgain) {
  on_ranks(2, [&](Flock& flock) {
    OddNetwork network(0);
    torch::optim::SGD sgd(network.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto trainer = std::make_unique<Trainer>(flock, network, sgd, TrainerOptions{});
    train_step(*trainer, network, flock.rank(), 0);
    network.frozen().set_requires_grad(true);
    const std::string text = message_of<InvalidArgument>([&] { trainer->zero_grad(); });
    require(text.find("frozen.weight was frozen when the trainer was made and requires a gradient now") !=
                std::string::npos,
            text);
    trainer->export_optimizer_state();
    trainer.reset();
    trainer = std::make_unique<Trainer>(flock, network, sgd, TrainerOptions{.name = "again"});
    const torch::Tensor before = network.frozen().detach().clone();
    train_step(*trainer, network, flock.rank(), 1);
    require(!torch::equal(before, network.frozen()), "frozen.weight stands still");
  });
}

TEST(TrainingStep, GroupsAddedLaterAreAnError) {
  on_ranks(1, [&](Flock& flock) {
    OddNetwork network(0);
    auto all = network.parameters();
    const torch::Tensor last = all.back();
    all.pop_back();
    for (const bool group : {true, false}) {
      torch::optim::SGD sgd(all, 0.1);
      Trainer trainer(flock, network, sgd, {.name = group ? "group" : "parameter"});
      train_step(trainer, network, 0, 0);
      if (group)
        sgd.add_param_group(torch::optim::OptimizerParamGroup({last}));
      else
        sgd.param_groups()[0].params().push_back(last);
      const std::string text = message_of<InvalidArgument>([&] { trainer.zero_grad(); });
      require(text.find("make the trainer again") != std::string::npos, text);
    }
  });
}

// Averages are still made in backward().
TEST(TrainingStep, ParametersFrozenLaterAreNotUpdated) {
  for (const char* method : {"dsgd-atc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method, .bucket_mb = 1e-5});
      for (Step t = 0; t < 4; ++t) {
        torch::Tensor first = loop.network->parameters()[0];
        first.set_requires_grad(t != 1 && t != 2);
        const torch::Tensor before = first.detach().clone();
        loop.trainer.zero_grad();
        loop.backward(t);
        torch::nn::utils::clip_grad_norm_(loop.network->parameters(), 0.1);
        loop.trainer.step();
        require(torch::equal(before, first) == (t == 1 || t == 2), fmt::format("{} step {}", method, t));
      }
    });
}

TEST(TrainingStep, ErrorsNameTheCallAndTheTrainingStep) {
  for (const char* method : {"dsgd-atc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = method});
      train_step(loop.trainer, *loop.network, flock.rank(), 0);
      if (flock.rank() == 1) return;
      const std::string text = message_of<PeerLost>([&] { train_step(loop.trainer, *loop.network, 0, 1); });
      require(text.rfind("step() of training step 1: ", 0) == 0, text);
    });
}

// The exception's type, which an uncaught error shows, is the flock's.
TEST(TrainingStep, ALostRankMayHaveHadFewerBatches) {
  for (const bool announces : {false, true})
    on_ranks(2, [&](Flock& flock) {
      Loop loop(flock, {.method = "dsgd-atc"});
      if (announces) loop.trainer.begin_epoch(3);
      train_step(loop.trainer, *loop.network, flock.rank(), 0);
      if (flock.rank() == 1) return;
      try {
        train_step(loop.trainer, *loop.network, 0, 1);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        require(typeid(error) == typeid(PeerLost) && dynamic_cast<const PeerLost&>(error).peer() == 1,
                typeid(error).name());
        require((text.find("If it has ended because it had fewer batches, call begin_epoch(batches)") !=
                 text.npos) == !announces,
                text);
        return;
      }
      throw Error("nothing was thrown");
    });
}

TEST(TrainingStep, AReplacedLayerIsAnError) {
  on_ranks(2, [](Flock& flock) {
    struct Replaceable : torch::nn::Module {
      Replaceable() { head = register_module("head", torch::nn::Linear(3, 2)); }
      torch::nn::Linear head{nullptr};
    };
    Replaceable net;
    torch::optim::SGD sgd(net.parameters(), 0.1);
    Trainer trainer(flock, net, sgd, {});
    const auto step = [&] {
      trainer.zero_grad();
      net.head->forward(torch::ones({2, 3})).square().sum().backward();
      trainer.step();
    };
    step();
    net.head = net.replace_module("head", torch::nn::Linear(3, 2));
    const std::string text = message_of<InvalidArgument>(step);
    require(text.find("parameter head.weight of the model is not one of those that it had") == 0, text);
  });
}

TEST(TrainingStep, WarnsOnceOfALoopThatNeverSteps) {
  testing::internal::CaptureStderr();
  on_ranks(1, [](Flock& flock) {
    Loop loop(flock, {});
    for (int k = 0; k < 30; ++k) {
      loop.trainer.zero_grad();
      loop.backward(0);
    }
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const std::size_t at = text.find("backward() and zero_grad() came 10 times in a row without a step");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("in a row", at + 70), std::string::npos) << text;
}

TEST(TrainingStep, WarnsOnceOfAModelThatIsConvertedTooLate) {
  testing::internal::CaptureStderr();
  on_ranks(2, [](Flock& flock) {
    Loop loop(flock, {});
    const auto replace = [&](bool in_columns) {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& parameter : loop.network->parameters())
        torch::Tensor(parameter).set_data(in_columns && parameter.dim() == 2 ? parameter.t().contiguous().t()
                                                                             : parameter.clone());
    };
    for (Step t = 0; t < 3; ++t) {
      replace(t > 0);  // first as after loading, in the same order
      train_step(loop.trainer, *loop.network, flock.rank(), t);
    }
    for (const torch::Tensor& parameter : loop.network->parameters())
      require(parameter.is_contiguous(), "put back");
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string line = "has another order in memory (strides";
  const std::size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("before the trainer is made", at), std::string::npos) << text;
  EXPECT_EQ(text.find(line, at + line.size()), std::string::npos) << text;
}

TEST(TrainingStep, WarnsOnceOfATopologyThatIsSetTooLate) {
  testing::internal::CaptureStderr();
  on_ranks(2, [](Flock& flock) {
    flock.set_schedule("ring");
    Loop loop(flock, {});
    flock.set_schedule("complete");
    for (Step t = 0; t < 3; ++t) train_step(loop.trainer, *loop.network, flock.rank(), t);
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string line =
      "the flock's topology was set after this trainer was made; the trainer continues with ring";
  const std::size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("was set after", at + line.size()), std::string::npos) << text;
}

}  // namespace
}  // namespace starling::train

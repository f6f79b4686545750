#include <gtest/gtest.h>
#include <sstream>

#include "train/odd_network.h"

// Tests which parameters are updated, with which settings, and what happens when the program changes them.
namespace starling::train {
namespace {

// Puts half of the parameters in a separate group.
OptimizerPtr in_two_groups(Network& network, const std::string& kind) {
  Tensors first, second;
  for (const torch::Tensor& parameter : network.parameters())
    (first.size() <= second.size() ? first : second).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups = {torch::optim::OptimizerParamGroup(first)};
  if (kind == "sgd") {
    using torch::optim::SGDOptions;
    groups.emplace_back(second,
                        std::make_unique<SGDOptions>(SGDOptions(0.01).momentum(0.5).weight_decay(0.1)));
    return std::make_unique<torch::optim::SGD>(groups, SGDOptions(0.1));
  }
  if (kind == "adamw") {
    using torch::optim::AdamWOptions;
    groups.emplace_back(second, std::make_unique<AdamWOptions>(AdamWOptions(0.001).weight_decay(0.5)));
    return std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.02).weight_decay(0));
  }
  using torch::optim::RMSpropOptions;
  groups.emplace_back(second, std::make_unique<RMSpropOptions>(RMSpropOptions(0.001)));
  return std::make_unique<torch::optim::RMSprop>(groups, RMSpropOptions(0.02));
}

void set_rate(torch::optim::Optimizer& optimizer, double factor) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(group.options().get_lr() * factor);
}

TEST(Replica, HandlesSharedFrozenAndUnusedParameters) {
  for (const char* optimizer : {"momentum", "adam", "adamw", "rmsprop", "softened"})
    for (const bool eager : {false, true})
      for (const double bucket_mb : {4.0, 1e-5})
        on_ranks(2, [&](Flock& flock) {
          const auto make = [](Rank r) { return std::make_shared<OddNetwork>(r); };
          const auto optimize = [&](Network& network) {
            return local_optimizer(optimizer).make(network.parameters());
          };
          Pair pair(make, optimize);
          const auto network = make(flock.rank());
          const OptimizerPtr local = optimize(*network);
          Trainer trainer(flock, *network, *local,
                          {.bucket_mb = bucket_mb, .eager = eager, .broadcast_at_start = false});
          for (Step t = 0; t < 6; ++t) {
            // The ranks' graphs also differ from each other.
            const auto extra = [&](Rank r) { return (t + r) % 3 == 0; };
            network->use_extra = extra(flock.rank());
            train_step(trainer, *network, flock.rank(), t);
            pair.backward([&](Network& one, Rank r) {
              static_cast<OddNetwork&>(one).use_extra = extra(r);
              return loss_of(one, r, t);
            });
            pair.mix();
            pair.step();
            require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                          fmt::format("{} step {}", optimizer, t));
          }
        });
}

// If gradients are averaged over all ranks, a parameter moves as soon as any rank has used it.
TEST(Replica, AllreduceUpdatesParametersThatOnlyTheOtherRankUsed) {
  on_ranks(2, [](Flock& flock) {
    OddNetwork network(0);
    torch::optim::SGD sgd(network.parameters(), 0.1);
    Trainer trainer(flock, network, sgd, {.method = "allreduce"});
    network.use_extra = flock.rank() == 1;
    const torch::Tensor before = network.named_parameters()["extra.weight"].detach().clone();
    train_step(trainer, network, flock.rank(), 0);
    require(!torch::equal(before, network.named_parameters()["extra.weight"]), "extra.weight stands still");
    require(trainer.consensus_distance() == 0, "the ranks differ");
  });
}

TEST(Replica, FrozenParametersStartEqualAndStayUnchanged) {
  on_ranks(2, [](Flock& flock) {
    OddNetwork network(flock.rank(), false);
    torch::optim::SGD sgd(network.parameters(), 0.1);
    Trainer trainer(flock, network, sgd, {});
    for (Step t = 0; t < 3; ++t) train_step(trainer, network, flock.rank(), t);
    require_equal(network.frozen(), OddNetwork(0, false).frozen(), "the frozen weight");
  });
}

TEST(Replica, FollowsSettingsAndSchedulesOfGroups) {
  for (const char* kind : {"sgd", "adamw", "rmsprop"})
    for (const bool eager : {false, true})
      on_ranks(2, [&](Flock& flock) {
        const auto optimize = [&](Network& network) { return in_two_groups(network, kind); };
        Pair pair([](Rank r) { return make_network("mlp", r); }, optimize);
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = optimize(*network);
        Trainer trainer(flock, *network, *local,
                        {.bucket_mb = 1e-5, .eager = eager, .broadcast_at_start = false});
        torch::optim::StepLR scheduler(*local, 2, 0.3);
        torch::optim::StepLR expected0(*pair.optimizers[0], 2, 0.3), expected1(*pair.optimizers[1], 2, 0.3);
        for (Step t = 0; t < 7; ++t) {
          if (t == 5)  // changed by the program
            for (torch::optim::Optimizer* one :
                 {local.get(), pair.optimizers[0].get(), pair.optimizers[1].get()})
              set_rate(*one, 7);
          train_step(trainer, *network, flock.rank(), t);
          scheduler.step();
          pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
          pair.mix();
          pair.step();
          expected0.step();
          expected1.step();
          require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                        fmt::format("{} step {}", kind, t));
        }
      });
}

TEST(Replica, ChangingParametersThatEagerHasSentIsAnError) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.eager = true});
    train_step(trainer, *network, flock.rank(), 0);
    {
      const torch::NoGradGuard no_grad;
      network->parameters()[2].mul_(2);
    }
    const std::string text = message_of<InvalidArgument>([&] { trainer.zero_grad(); });
    require(text.find("was changed by hand, but eager has already sent") != std::string::npos, text);
    require(text.find("parameters_changed()") != std::string::npos, text);
  });
}

// Changes between steps with torch's in-place operations, whoever zeroes the gradients.
TEST(Replica, SendsParametersAsChangedByHand) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "push-sum"})
    for (const char* optimizer : {"sgd", "rmsprop"})
      for (const bool own_zero : {false, true})
        for (const bool eager : {false, true})
          on_ranks(2, [&](Flock& flock) {
            Pair pair = mlp_pair(optimizer);
            const NetworkPtr network = make_network("mlp", flock.rank());
            const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
            Trainer trainer(flock, *network, *local,
                            {.method = method, .eager = eager, .broadcast_at_start = false});
            const auto change = [](Network& one, Rank r) {
              const torch::NoGradGuard no_grad;
              one.parameters()[2].mul_(r == 0 ? 0.5 : 2);
            };
            for (Step t = 0; t < 4; ++t) {
              if (t > 1) change(*network, flock.rank());
              if (t > 1 && eager) trainer.parameters_changed();
              if (own_zero)
                forget_gradients(*network);
              else
                trainer.zero_grad();
              loss_of(*network, flock.rank(), t).backward();
              trainer.step();
              for (const Rank r : {0, 1})
                if (t > 1) change(pair.network(r), r);
              pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
              if (std::string(method) == "dsgd-awc") pair.mix();
              pair.step();
              if (std::string(method) != "dsgd-awc") pair.mix();
              require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                            fmt::format("{} {} {} {} step {}", method, optimizer, own_zero, eager, t));
            }
          });
}

TEST(Replica, ParametersNeverMoveAndChangeOnlyInStep) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {});
    const void* place = network->parameters()[0].data_ptr();
    for (Step t = 0; t < 3; ++t) {
      const torch::Tensor before = flat_parameters(*network).clone();
      trainer.zero_grad();
      loss_of(*network, flock.rank(), t).backward();
      require_equal(flat_parameters(*network), before, "before step()");
      trainer.step();
      require(!torch::equal(flat_parameters(*network), before), "step() did nothing");
      require(network->parameters()[0].data_ptr() == place, "the parameters moved");
    }
  });
}

TEST(Replica, TrainsEmptyAndScalarParameters) {
  struct Small : torch::nn::Module {
    torch::Tensor scalar = register_parameter("scalar", torch::ones({}));
    torch::Tensor nothing = register_parameter("nothing", torch::zeros({0, 3}));  // the first in its bucket
  };
  for (const char* optimizer : {"momentum", "rmsprop"})
    for (const double megabytes : {4.0, 1e-6})
      on_ranks(2, [&](Flock& flock) {
        Small small;
        const OptimizerPtr local = local_optimizer(optimizer).make(small.parameters());
        Trainer trainer(flock, small, *local, {.bucket_mb = megabytes});
        trainer.zero_grad();
        (small.scalar * 2 + small.nothing.sum()).backward();
        trainer.step();
        require(small.scalar.item<float>() < 1, "the scalar has not moved");
      });
}

// Loading a module replaces the memory of its parameters.
TEST(Replica, AModuleLoadedDuringTrainingIsTrained) {
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

}  // namespace
}  // namespace starling::train

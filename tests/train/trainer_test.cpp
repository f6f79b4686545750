#include <gtest/gtest.h>

#include "starling/train/local_optimizer.h"
#include "starling/train/torch_optimizer.h"
#include "train/odd_network.h"

// Tests what the trainer offers to bindings of other languages: their own modules and optimizers, and steps
// in parts.
namespace starling::train {
namespace {

TEST(Trainer, AcceptsAnyNumberOfBackwardPasses) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "gradient-tracking"})
    on_ranks(2, [method](Flock& flock) {
      const auto run = [&](bool many, const std::string& name) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local,
                        {.method = method, .bucket_mb = 1e-5, .accumulation = 0, .name = name});
        for (Step t = 0; t < 4; ++t) {
          trainer.zero_grad();
          // The number of passes differs between steps and between ranks.
          const Step passes = 1 + (t + flock.rank()) % 3;
          torch::Tensor sum = torch::zeros({}, torch::kFloat64);
          for (Step k = 0; k < passes; ++k) {
            const torch::Tensor loss = loss_of(*network, flock.rank(), 10 * t + k);
            if (many)
              loss.backward();
            else
              sum = sum + loss;
          }
          if (!many) sum.backward();
          trainer.step();
        }
        return flat_parameters(*network).clone();
      };
      require_close(run(true, "many"), run(false, "one"), method);
    });
}

TEST(Trainer, SentGradientsAreComputedOnce) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.method = "allreduce", .accumulation = 1});
    require(trainer.sends_gradients(), "sends gradients");
    trainer.zero_grad();
    loss_of(*network, flock.rank(), 0).backward();
    const std::string text =
        message_of<InvalidArgument>([&] { loss_of(*network, flock.rank(), 1).backward(); });
    require(text.find("accumulation is 1") != std::string::npos, text);
    trainer.step();
  });
}

TEST(Trainer, FinishedGradientsAreTheMeanAndMayBeChanged) {
  on_ranks(2, [](Flock& flock) {
    Pair pair = mlp_pair("momentum");
    pair.start_equal();
    const NetworkPtr network = make_network("mlp", 0);
    const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
    Trainer trainer(flock, *network, *local, {.method = "allreduce", .bucket_mb = 1e-5});
    for (Step t = 0; t < 3; ++t) {
      trainer.zero_grad();
      loss_of(*network, flock.rank(), t).backward();
      trainer.finish_gradients();
      pair.backward([t](Network& one, Rank rank) { return loss_of(one, rank, t); });
      pair.mix_gradients();
      require_close(flat_gradients(*network), flat_gradients(pair.network(0)), "the mean gradient");
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : network->parameters()) parameter.mutable_grad().mul_(0.5);
      for (const Rank r : {0, 1})
        for (torch::Tensor& parameter : pair.network(r).parameters()) parameter.mutable_grad().mul_(0.5);
      trainer.step();
      pair.step();
      require_close(flat_parameters(*network), flat_parameters(pair.network(0)), "half of it");
    }
  });
}

TEST(Trainer, BeginsSeparatelyFromZeroing) {
  on_ranks(2, [](Flock& flock) {
    const auto run = [&](bool apart, const std::string& name) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(flock, *network, sgd, {.name = name});
      for (Step t = 0; t < 3; ++t) {
        if (apart) {
          trainer.zero_gradients();
          trainer.begin();
          trainer.begin();
        } else {
          trainer.zero_grad();
        }
        loss_of(*network, flock.rank(), t).backward();
        trainer.step();
      }
      return flat_parameters(*network).clone();
    };
    require_equal(run(true, "apart"), run(false, "together"), "zero_gradients and begin");
  });
}

TEST(Trainer, FlatMemoryHoldsTheParametersAndIsWritable) {
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.topology = "complete", .bucket_mb = 1e-5});
    const auto flat = trainer.flat_parameters();
    require(flat.size() == trainer.buckets() && flat.size() > 1, "one per bucket");
    trainer.zero_grad();
    loss_of(*network, flock.rank(), 0).backward();
    trainer.step();
    for (const torch::Tensor& one : flat) torch::Tensor(one).fill_(1.0 + flock.rank());
    trainer.flat_parameters_changed();
    require_equal(flat_parameters(*network), torch::full_like(flat_parameters(*network), 1.0 + flock.rank()),
                  "the parameters");
    // Values kept for the next average are dropped: the average uses the overwritten parameters.
    trainer.zero_grad();
    trainer.skip();
    require_close(flat_parameters(*network), torch::full_like(flat_parameters(*network), 1.5), "the mean");
  });
}

TEST(Trainer, CallsAfterBackwardAtTheEndOfEachPass) {
  on_ranks(1, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    int told = 0;
    torch::Tensor gradient;
    TrainerOptions options{.method = "dsgd-atc", .bucket_mb = 1e-5, .accumulation = 0};
    options.after_backward = [&] {
      ++told;
      gradient = flat_gradients(*network).clone();
    };
    Trainer trainer(flock, *network, sgd, options);
    for (Step t = 0; t < 3; ++t) {
      trainer.zero_grad();
      loss_of(*network, 0, t).backward();
      require(told == 2 * t + 1, "once per backward");
      require_equal(gradient, flat_gradients(*network), "when all gradients are there");
      loss_of(*network, 0, t + 10).backward();
      require(told == 2 * t + 2, "of every one");
      trainer.step();
    }
    // A backward pass that fails after some gradients have been computed does not end the callbacks.
    torch::Tensor x = scattered({4}, 1).requires_grad_();
    torch::Tensor fails = x * 2;
    fails.register_hook([](const torch::Tensor&) -> torch::Tensor { throw Error("on purpose"); });
    // The parameters' gradients are ready before the chain of multiplications is done.
    torch::Tensor late = fails;
    for (int k = 0; k < 50; ++k) late = late * 1.0;
    const torch::Tensor early = network->parameters().back().sum();
    require(message_of<std::exception>([&] { (early + late.sum()).backward(); }).find("on purpose") !=
                std::string::npos,
            "the error");
    const int before = told;
    trainer.zero_grad();
    loss_of(*network, 0, 4).backward();
    require(told == before + 1, "after a backward that failed");
  });
}

/// Knows the module's tensors by name only, and has its own update rule.
class Halving final : public train::LocalOptimizer {
 public:
  explicit Halving(Tensors parameters) : LocalOptimizer("", 1), parameters_(std::move(parameters)) {}
  int steps = 0;

  std::string name() const override { return "halving"; }
  std::vector<std::vector<torch::Tensor>> groups() const override { return {parameters_}; }
  std::vector<Settings> settings() const override { return {{}}; }
  void read_settings() override {}
  bool takes_all_at_once() const override { return true; }
  void export_state(const std::vector<Placed>&, const std::vector<Update*>&) override {}
  void import_state(const std::vector<Placed>&, const std::vector<Update*>&) override {}
  std::string saved(bool) const override { return {}; }
  void restore(const std::string&, bool) override {}

 private:
  void step(std::vector<std::vector<torch::Tensor>>& groups) override {
    const torch::NoGradGuard no_grad;
    ++steps;
    for (torch::Tensor& one : groups[0]) one.sub_(one.grad(), 0.5 / steps);
  }

  Tensors parameters_;
};

TEST(Trainer, WorksWithForeignModulesAndOptimizers) {
  on_ranks(2, [](Flock& flock) {
    std::vector<NetworkPtr> networks = {make_network("mlp", 0), make_network("mlp", 1)};
    const NetworkPtr network = make_network("mlp", flock.rank());
    int asked = 0;
    const ModuleTensors plain = tensors_of(*network);
    const ModuleTensors module{[&] {
                                 ++asked;
                                 return plain.parameters();
                               },
                               plain.buffers};
    auto made = std::make_unique<Halving>(network->parameters());
    const Halving& halving = *made;
    Trainer trainer(
        flock, module, std::move(made),
        {.method = "dsgd-atc", .topology = "complete", .bucket_mb = 1e-5, .broadcast_at_start = false});
    require(asked > 0, "the module was asked");
    require(trainer.buckets() == 1, "an optimizer that takes all at once has one bucket");
    for (Step t = 0; t < 3; ++t) {
      trainer.zero_grad();
      loss_of(*network, flock.rank(), t).backward();
      trainer.step();
      require(halving.steps == t + 1, "one step of its own per step");
      torch::Tensor mean = torch::zeros_like(flat_parameters(*network));
      for (const Rank r : {0, 1}) {
        Network& one = *networks[static_cast<std::size_t>(r)];
        forget_gradients(one);
        loss_of(one, r, t).backward();
        const double rate = 0.5 / static_cast<double>(t + 1);
        mean = mean + (flat_parameters(one) - rate * flat_gradients(one)) / 2;
      }
      for (const NetworkPtr& one : networks) set_parameters(*one, mean);
      require_close(flat_parameters(*network), mean, "the mean model");
    }
  });
}

}  // namespace
}  // namespace starling::train

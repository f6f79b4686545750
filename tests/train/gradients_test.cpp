#include <gtest/gtest.h>

#include "starling/fabric/forwarding.h"
#include "train/odd_network.h"

// Tests what happens to gradients before they are used in a step.
namespace starling::train {
namespace {

// Counts the messages that this rank sends.
class Watched final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  int posts = 0;

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    ++posts;
    ForwardingFabric::post(range, header, to);
  }
};

TEST(Gradients, AccumulationEqualsOneBatchAndSendsOnce) {
  constexpr int kMicro = 3;
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking"}) {
    const auto ends = launchers()[0].run(2, [&](const std::shared_ptr<Fabric>& fabric) {
      const auto watched = std::make_shared<Watched>(fabric);
      const Flock flock(watched);
      const auto run = [&](int accumulation, const std::string& name) {
        const NetworkPtr network = make_network("mlp", 1);
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local,
                        {.method = method, .bucket_mb = 1e-5, .accumulation = accumulation, .name = name});
        for (Step t = 0; t < 3; ++t) {
          trainer.zero_grad();
          const auto micro = [&](int k) { return loss_of(*network, flock.rank(), t * kMicro + k) / kMicro; };
          if (accumulation == 1) {
            (micro(0) + micro(1) + micro(2)).backward();
          } else {
            const int before = watched->posts;
            for (int k = 0; k + 1 < kMicro; ++k) micro(k).backward();
            require(watched->posts == before, "a micro-step has sent something");
            micro(kMicro - 1).backward();
          }
          trainer.step();
        }
        return flat_parameters(*network).clone();
      };
      require_close(run(kMicro, "micro"), run(1, "whole"), method);
    });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << method << ": " << end.message;
  }
}

TEST(Gradients, TooManyBackwardPassesAreAnErrorWithTheirNumber) {
  on_ranks(1, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.accumulation = 2});
    trainer.zero_grad();
    for (int k = 0; k < 2; ++k) loss_of(*network, 0, k).backward();
    const std::string text = message_of<InvalidArgument>([&] { loss_of(*network, 0, 2).backward(); });
    require(text.find("3 times") != std::string::npos && text.find("accumulation is 2") != std::string::npos,
            text);
    trainer.zero_grad();  // from here on, the trainer works again
    loss_of(*network, 0, 3).backward();
    require(trainer.step(), "step");
  });
}

TEST(Gradients, ZeroedBeforeTheStepAreNotUsed) {
  on_ranks(2, [](Flock& flock) {
    const auto run = [&](bool twice, const std::string& name) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      torch::optim::SGD sgd(network->parameters(), 0.1);
      Trainer trainer(flock, *network, sgd, {.name = name});
      for (Step t = 0; t < 3; ++t) {
        trainer.zero_grad();
        if (twice) {
          loss_of(*network, 5, t).backward();
          trainer.zero_grad();
        }
        loss_of(*network, flock.rank(), t).backward();
        trainer.step();
      }
      return flat_parameters(*network).clone();
    };
    require_equal(run(true, "twice"), run(false, "once"), "after a batch that was thrown away");
  });
  on_ranks(2, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank());
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.method = "allreduce"});
    trainer.zero_grad();
    loss_of(*network, flock.rank(), 0).backward();
    const std::string text = message_of<InvalidArgument>([&] { trainer.zero_grad(); });
    require(text.find("allreduce has used the gradients") != std::string::npos, text);
    trainer.step();
  });
}

TEST(Gradients, UndefinedGradientsAreAdopted) {
  for (const char* method : {"dsgd-awc", "allreduce"})
    on_ranks(2, [&](Flock& flock) {
      const auto run = [&](bool forget, const std::string& name) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("adam").make(network->parameters());
        Trainer trainer(flock, *network, *local, {.method = method, .bucket_mb = 1e-5, .name = name});
        for (Step t = 0; t < 4; ++t) {
          if (forget)
            forget_gradients(*network);
          else
            trainer.zero_grad();
          loss_of(*network, flock.rank(), t).backward();
          trainer.step();
        }
        return flat_parameters(*network).clone();
      };
      require_equal(run(true, "forget"), run(false, "zero"), method);
    });
}

TEST(Gradients, ClippingEqualsTorchsClipGradNorm) {
  for (const char* method : {"dsgd-awc", "allreduce", "parameter-server"})
    for (const double limit : {0.05, 100.0})
      on_ranks(2, [&](Flock& flock) {
        const bool central = std::string(method) != "dsgd-awc";
        Pair pair = mlp_pair("momentum");
        if (central) pair.start_equal();
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(
            flock, *network, *local,
            {.method = method, .bucket_mb = 1e-5, .clip_norm = limit, .broadcast_at_start = central});
        for (Step t = 0; t < 4; ++t) {
          train_step(trainer, *network, flock.rank(), t);
          pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
          if (central)
            pair.mix_gradients();
          else
            pair.mix();
          double norm = 0;
          for (const Rank r : {0, 1}) {
            const double length = torch::nn::utils::clip_grad_norm_(pair.network(r).parameters(), limit);
            if (r == flock.rank()) norm = length;
          }
          pair.step();
          require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                        fmt::format("{} limit {} step {}", method, limit, t));
          if (std::string(method) != "parameter-server")
            require(std::abs(trainer.gradient_norm() - norm) < 1e-9 * norm, "gradient_norm()");
        }
      });
}

TEST(Gradients, SparseGradientsAreRefusedByName) {
  struct Words : torch::nn::Module {
    torch::nn::Embedding table =
        register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
  };
  for (const bool forget : {false, true})
    on_ranks(1, [&](Flock& flock) {
      Words words;
      torch::optim::SGD sgd(words.parameters(), 0.1);
      Trainer trainer(flock, words, sgd, {});
      if (forget)
        forget_gradients(words);
      else
        trainer.zero_grad();
      const std::string text = message_of<InvalidArgument>([&] {
        words.table->forward(torch::tensor({1, 2})).sum().backward();
      });
      require(text.find("table.weight is sparse") != std::string::npos, text);
    });
}

TEST(Gradients, ShortMessagesMatchTheirEquations) {
  for (const auto& [name, type] : {std::pair{"bfloat16", torch::kBFloat16}, {"float16", torch::kFloat16}})
    for (const char* method : {"dsgd-awc", "dsgd-atc"})
      on_ranks(2, [&, name = name, type = type](Flock& flock) {
        const bool awc = std::string(method) == "dsgd-awc";
        Pair pair([](Rank r) { return make_network("mlp", r, torch::kFloat32); },
                  [](Network& network) { return local_optimizer("momentum").make(network.parameters()); });
        const NetworkPtr network = make_network("mlp", flock.rank(), torch::kFloat32);
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local,
                        {.method = method, .message = name, .broadcast_at_start = false});
        // x <- x + (their rounded x - own rounded x) / 2: only messages are rounded.
        const auto mix = [&] {
          const torch::Tensor x0 = flat_parameters(pair.network(0)), x1 = flat_parameters(pair.network(1));
          const torch::Tensor apart = x1.to(type).to(torch::kFloat32) - x0.to(type).to(torch::kFloat32);
          set_parameters(pair.network(0), x0 + apart / 2);
          set_parameters(pair.network(1), x1 - apart / 2);
        };
        for (Step t = 0; t < 5; ++t) {
          train_step(trainer, *network, flock.rank(), t);
          pair.backward([&](Network& one, Rank r) { return loss_of(one, r, t); });
          if (awc) mix();
          pair.step();
          if (!awc) mix();
        }
        require_close(flat_parameters(*network), flat_parameters(pair.network(flock.rank())),
                      fmt::format("{} {}", name, method), 1e-4);
      });
}

// Without updates, rounding must not move the flock's mean, however many steps are made.
TEST(Gradients, RoundedMessagesKeepTheMean) {
  on_ranks(4, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp", flock.rank(), torch::kFloat32);
    torch::optim::SGD sgd(network->parameters(), 0.0);
    Trainer trainer(flock, *network, sgd,
                    {.topology = "ring", .message = "bfloat16", .broadcast_at_start = false});
    const auto mean = [&] {
      const auto averaged = trainer.global_average();
      return flat_parameters(*network).clone();
    };
    const torch::Tensor before = mean();
    for (Step t = 0; t < 100; ++t) train_step(trainer, *network, flock.rank(), t);
    require_close(mean(), before, "the mean", 1e-5);
  });
}

}  // namespace
}  // namespace starling::train

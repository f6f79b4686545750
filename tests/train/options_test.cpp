#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/trained.h"

// The error for a bad configuration says what is wrong and what is valid.
namespace starling::train {
namespace {

using testing::HasSubstr;

// The error of constructing a trainer in a flock of `size`.
std::string trainer_refusal(const TrainerOptions& options, const std::string& optimizer = "sgd",
                            Rank size = 1) {
  const auto ends = ends_on("local_threads", size, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    const OptimizerPtr local = local_optimizer(optimizer).make(network->parameters());
    const std::string text =
        message_of<InvalidArgument>([&] { const Trainer trainer(flock, *network, *local, options); });
    throw Error(text);
  });
  return ends[0].message;
}

TEST(TrainerOptions, RefusesUnknownWords) {
  EXPECT_THAT(trainer_refusal({.method = "dsgd-acw"}), AllOf(HasSubstr("dsgd-acw"), HasSubstr("dsgd-awc")));
  EXPECT_THAT(trainer_refusal({.topology = "rang"}), AllOf(HasSubstr("rang"), HasSubstr("ring")));
  EXPECT_THAT(trainer_refusal({.message = "float61"}), AllOf(HasSubstr("float61"), HasSubstr("float16")));
  EXPECT_THAT(trainer_refusal({.message = "int4"}), AllOf(HasSubstr("int4"), HasSubstr("int8")));
  EXPECT_THAT(trainer_refusal({.buffers = "averaged"}), AllOf(HasSubstr("averaged"), HasSubstr("broadcast")));
  EXPECT_THAT(trainer_refusal({.on_peer_failure = "rise"}), AllOf(HasSubstr("rise"), HasSubstr("raise")));
  EXPECT_THAT(trainer_refusal({.method = "local-sgd(tau=0)"}), HasSubstr("tau"));
  EXPECT_THAT(trainer_refusal({.method = "relay-sgd(missing=zero)", .topology = "chain"}),
              HasSubstr("missing"));
}

TEST(TrainerOptions, RefusesNumbersOutOfRange) {
  const double nan = std::nan("");
  for (const double megabytes : {0.0, -1.0, nan, HUGE_VAL})
    EXPECT_THAT(trainer_refusal({.bucket_mb = megabytes}), HasSubstr("bucket_mb")) << megabytes;
  for (const int accumulation : {-1, -3})
    EXPECT_THAT(trainer_refusal({.accumulation = accumulation}), HasSubstr("accumulation")) << accumulation;
  for (const double norm : {-1.0, nan, HUGE_VAL})
    EXPECT_THAT(trainer_refusal({.clip_norm = norm}), HasSubstr("clip_norm")) << norm;
  for (const double scale : {-1.0, nan, HUGE_VAL})
    EXPECT_THAT(trainer_refusal({.loss_scale = scale}), HasSubstr("loss_scale")) << scale;
}

TEST(TrainerOptions, RefusesOptionsThatExcludeEachOther) {
  EXPECT_THAT(trainer_refusal({.clip_norm = 1, .eager = true}),
              HasSubstr("eager and clip_norm exclude each other"));
  EXPECT_THAT(trainer_refusal({.eager = true, .loss_scale = 1}),
              HasSubstr("eager and loss_scale exclude each other"));
  for (const char* method : {"dadam", "accum-adam", "accum-adamw(s=2)"})
    for (const char* optimizer : {"sgd", "rmsprop", "amsgrad"})
      EXPECT_THAT(trainer_refusal({.method = method}, optimizer),
                  HasSubstr("needs Adam or AdamW (without amsgrad)"));
  EXPECT_THAT(trainer_refusal({.method = "quasi-global-momentum"}, "adamw"),
              AllOf(HasSubstr("needs SGD without momentum, not torch::optim::AdamW"), HasSubstr("mu")));
  for (const char* method : {"quasi-global-momentum", "proxskip"})
    EXPECT_THAT(trainer_refusal({.method = method, .topology = "ring"}, "momentum"),
                HasSubstr("needs SGD without momentum, not torch::optim::SGD with momentum 0."));
  for (const char* method : {"dsgd-awc", "gradient-tracking", "push-sum"})
    EXPECT_THAT(trainer_refusal({.method = method, .topology = "ceca"}, "sgd", 4),
                AllOf(HasSubstr("ceca"), HasSubstr("dsgd-atc")));
  EXPECT_THAT(trainer_refusal({.method = "dsgd-awc", .topology = "fold-unfold"}, "sgd", 6),
              HasSubstr("push-sum"));
  EXPECT_THAT(trainer_refusal({.method = "relay-sgd", .topology = "ring"}, "sgd", 4), HasSubstr("tree"));
  for (const char* method : {"push-sum", "allreduce-model", "local-sgd", "parameter-server"})
    EXPECT_THAT(trainer_refusal({.method = method, .message = "bfloat16"}),
                AllOf(HasSubstr(method), HasSubstr("bfloat16 would round"), HasSubstr("float32")));
  EXPECT_THAT(trainer_refusal({.method = "relay-sgd", .topology = "chain", .message = "float16"}),
              HasSubstr("use float32"));
  EXPECT_THAT(trainer_refusal({.method = "push-sum", .message = "int8"}), HasSubstr("int8 would round"));
  EXPECT_THAT(trainer_refusal({.method = "allreduce", .message = "int8"}),
              AllOf(HasSubstr("allreduce cannot take int8"), HasSubstr("float16 and bfloat16")));
}

std::string refusal_of(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  return ends_on("local_threads", 1,
                 [&](Flock& flock) {
                   throw Error(message_of<InvalidArgument>(
                       [&] { const Trainer trainer(flock, module, optimizer, {}); }));
                 })[0]
      .message;
}

TEST(TrainerOptions, RefusesUnsuitableModulesAndOptimizers) {
  const NetworkPtr network = make_network("mlp");
  torch::optim::LBFGS lbfgs(network->parameters());
  EXPECT_THAT(refusal_of(*network, lbfgs), AllOf(HasSubstr("LBFGS"), HasSubstr("SGD")));

  for (torch::Tensor& parameter : network->parameters()) parameter.set_requires_grad(false);
  torch::optim::SGD frozen(network->parameters(), 0.1);
  EXPECT_THAT(refusal_of(*network, frozen), HasSubstr("nothing to train"));

  torch::nn::Linear complex(2, 2);
  complex->to(torch::kComplexFloat);
  torch::optim::SGD sgd(complex->parameters(), 0.1);
  EXPECT_THAT(refusal_of(*complex, sgd), HasSubstr("cannot be averaged"));
}

TEST(TrainerOptions, RefusesNegativeEpochsAndSteps) {
  on_ranks(1, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {});
    require(message_of<InvalidArgument>([&] { trainer.begin_epoch(-1); }).find("-1") != std::string::npos,
            "epoch");
    require(message_of<InvalidArgument>([&] { trainer.set_steps(-2); }).find("-2") != std::string::npos,
            "steps");
  });
}

}  // namespace
}  // namespace starling::train

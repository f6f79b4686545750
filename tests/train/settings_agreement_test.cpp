#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/trained.h"

// If ranks do not train the same model in the same way, all of them get an error with both values.
namespace starling::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Rank kOdd = 2;  // the rank that is different

/// The model and settings that one rank trains.
struct Trained {
  std::function<torch::nn::AnyModule()> module = [] { return torch::nn::AnyModule(torch::nn::Linear(8, 3)); };
  std::function<OptimizerPtr(std::vector<torch::Tensor>)> optimizer =
      [](std::vector<torch::Tensor> parameters) {
        return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1));
      };
  TrainerOptions options = {};
};

template <typename Holder, typename... Arguments>
Trained model_of(Arguments... arguments) {
  Trained setup;
  setup.module = [=] { return torch::nn::AnyModule(Holder(arguments...)); };
  return setup;
}

template <typename Optimizer, typename Options>
Trained optimized(const Options& options) {
  Trained setup;
  setup.optimizer = [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
  return setup;
}

Trained with_options(const TrainerOptions& options) {
  Trained setup;
  setup.options = options;
  return setup;
}

// The error that every one of four ranks gets.
std::string refusal_of(const Trained& usual, const Trained& odd, Rank size = 4) {
  const auto ends = ends_on("local_threads", size, [&](Flock& flock) {
    const Trained& setup = flock.rank() == kOdd ? odd : usual;
    torch::nn::AnyModule module = setup.module();
    const OptimizerPtr optimizer = setup.optimizer(module.ptr()->parameters());
    const Trainer trainer(flock, *module.ptr(), *optimizer, setup.options);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.message, ends[0].message);
  return ends[0].message;
}

class OddModule : public torch::nn::Module {
 public:
  OddModule(bool frozen, torch::Dtype buffer) {
    register_parameter("w", torch::zeros({4}, torch::kFloat32), !frozen);
    register_parameter("v", torch::zeros({4}, torch::kFloat32));
    register_buffer("seen", torch::zeros({2}, buffer));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};
Trained odd_module(bool frozen, torch::Dtype buffer) {
  Trained setup;
  setup.module = [=] { return torch::nn::AnyModule(std::make_shared<OddModule>(frozen, buffer)); };
  return setup;
}

TEST(SettingsAgreement, NamesModelsThatDiffer) {
  using torch::nn::Embedding;
  using torch::nn::Linear;
  const std::string alike = "the ranks do not train alike: ";
  EXPECT_EQ(refusal_of(model_of<Linear>(8, 3), model_of<Linear>(10, 3)),
            alike + "parameter weight: [3, 8] on rank 0, [3, 10] on rank 2");
  EXPECT_EQ(refusal_of(model_of<Linear>(8, 3), model_of<Linear>(3, 8)),
            alike + "parameter weight: [3, 8] on rank 0, [8, 3] on rank 2");
  EXPECT_EQ(refusal_of(model_of<Embedding>(65, 4), model_of<Embedding>(66, 4)),
            alike + "parameter weight: [65, 4] on rank 0, [66, 4] on rank 2");
  EXPECT_EQ(refusal_of(model_of<Linear>(8, 3), model_of<Linear>(torch::nn::LinearOptions(8, 3).bias(false))),
            alike + "parameter bias: [3] on rank 0, none on rank 2");
  EXPECT_EQ(refusal_of(odd_module(false, torch::kFloat32), odd_module(true, torch::kFloat32)),
            alike + "training of parameter w: group 0 of the optimizer on rank 0, frozen on rank 2");
  EXPECT_EQ(refusal_of(odd_module(false, torch::kFloat32), odd_module(false, torch::kFloat64)),
            alike + "type of buffer seen: float32 on rank 0, float64 on rank 2");
}

TEST(SettingsAgreement, NamesOptimizersThatDiffer) {
  using namespace torch::optim;
  const auto sgd = [](double lr, double momentum = 0) {
    return optimized<SGD>(SGDOptions(lr).momentum(momentum));
  };
  const std::string alike = "the ranks do not train alike: ";
  EXPECT_EQ(refusal_of(sgd(0.1), sgd(0.05)), alike + "the optimizer's lr: 0.1 on rank 0, 0.05 on rank 2");
  EXPECT_EQ(refusal_of(sgd(0.1), sgd(0.1, 0.9)),
            alike + "the optimizer's momentum: 0 on rank 0, 0.9 on rank 2");
  EXPECT_EQ(refusal_of(optimized<Adam>(AdamOptions(0.1)), optimized<AdamW>(AdamWOptions(0.1))),
            alike + "optimizer: Adam on rank 0, AdamW on rank 2");
  EXPECT_EQ(refusal_of(optimized<Adam>(AdamOptions(0.1)), optimized<Adam>(AdamOptions(0.1).eps(1e-6))),
            alike + "the optimizer's eps: 1e-08 on rank 0, 1e-06 on rank 2");
  // An optimizer that only torch knows is compared by its saved state; an unknown one by its learning rate.
  EXPECT_THAT(
      refusal_of(optimized<RMSprop>(RMSpropOptions(0.1)), optimized<RMSprop>(RMSpropOptions(0.1).alpha(0.5))),
      AllOf(HasSubstr("the optimizer's alpha: 0.99"), HasSubstr("0.5 on rank 2")));
  Trained softened = sgd(0);
  softened.optimizer = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Softened>(std::move(parameters));
  };
  Trained other = softened;
  other.optimizer = [](std::vector<torch::Tensor> parameters) {
    auto made = std::make_unique<Softened>(std::move(parameters));
    made->param_groups()[0].options().set_lr(0.2);
    return made;
  };
  EXPECT_EQ(refusal_of(softened, other), alike + "the optimizer's lr: 0.1 on rank 0, 0.2 on rank 2");
  Trained groups = sgd(0.1);
  groups.optimizer = [](std::vector<torch::Tensor> parameters) {
    const std::vector<OptimizerParamGroup> two = {
        OptimizerParamGroup({parameters[0]}),
        OptimizerParamGroup({parameters[1]}, std::make_unique<SGDOptions>(0.3))};
    return std::make_unique<SGD>(two, SGDOptions(0.1));
  };
  EXPECT_EQ(refusal_of(sgd(0.1), groups), alike +
                                              "training of parameter bias: group 0 of the optimizer on rank "
                                              "0, group 1 of the optimizer on rank 2");
}

TEST(SettingsAgreement, NamesParametersInAnotherMemoryOrder) {
  const auto convolution = [](torch::MemoryFormat order) {
    Trained setup;
    setup.module = [order] {
      torch::nn::Conv2d made(torch::nn::Conv2dOptions(4, 2, 3).bias(false));
      const torch::NoGradGuard no_grad;
      made->weight.set_data(made->weight.contiguous(order));
      return torch::nn::AnyModule(made);
    };
    return setup;
  };
  EXPECT_THAT(refusal_of(convolution(torch::MemoryFormat::Contiguous),
                         convolution(torch::MemoryFormat::ChannelsLast)),
              HasSubstr("permuted strides of parameter weight: none on rank 0, 36, 1, 12, 4 on rank 2"));
}

TEST(SettingsAgreement, NamesOptionsThatDiffer) {
  const auto expect = [](const TrainerOptions& usual, const TrainerOptions& odd, const std::string& text) {
    EXPECT_EQ(refusal_of(with_options(usual), with_options(odd)), "the ranks do not train alike: " + text);
  };
  expect({.method = "dsgd-awc"}, {.method = "dsgd-atc"}, "method: dsgd-awc on rank 0, dsgd-atc on rank 2");
  expect({.topology = "ring"}, {.topology = "complete"},
         "topology: ring(weights=metropolis) on rank 0, complete on rank 2");
  expect({}, {.seed = 1}, "seed: 0 on rank 0, 1 on rank 2");
  expect({}, {.bucket_mb = 2}, "bucket_mb: 4 on rank 0, 2 on rank 2");
  expect({}, {.message = "int8"}, "message: float32 on rank 0, int8 on rank 2");
  expect({}, {.accumulation = 2}, "accumulation: 1 on rank 0, 2 on rank 2");
  expect({}, {.clip_norm = 0.5}, "clip_norm: 0 on rank 0, 0.5 on rank 2");
  expect({}, {.eager = true}, "eager: false on rank 0, true on rank 2");
  expect({.accumulation = 0}, {.accumulation = 0, .eager = true}, "eager: false on rank 0, true on rank 2");
  expect({}, {.loss_scale = 8}, "loss_scale: 0 on rank 0, 8 on rank 2");
  expect({}, {.buffers = "local"}, "buffers: average on rank 0, local on rank 2");
  expect({}, {.broadcast_at_start = false}, "broadcast_at_start: true on rank 0, false on rank 2");
  expect({}, {.on_peer_failure = "reweight"}, "on_peer_failure: raise on rank 0, reweight on rank 2");
  expect({.on_peer_failure = "reweight"}, {}, "on_peer_failure: reweight on rank 0, raise on rank 2");
}

TEST(SettingsAgreement, AgreesBeforeAFailurePolicyIsTheFlocks) {
  on_ranks(3, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    const Trainer trainer(flock, *network, sgd, {.on_peer_failure = "reweight"});
    require(flock.on_peer_failure() == OnPeerFailure::reweight, "not set");
  });
}

TEST(SettingsAgreement, AllowsSettingsPerRankWhereAsked) {
  Trained usual = optimized<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  Trained odd = optimized<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9));
  usual.options.per_rank_settings = odd.options.per_rank_settings = true;
  odd.options.clip_norm = 1;
  EXPECT_EQ(refusal_of(usual, odd), "");
}

// An empty topology means the flock's own, if the program has set one.
TEST(SettingsAgreement, AnEmptyTopologyMeansTheFlocksOwn) {
  on_ranks(4, [](Flock& flock) {
    const torch::Tensor by_default = train(flock, {});
    require_equal(by_default, train(flock, {.options = {.topology = "one-peer-exponential"}}), "the default");
    flock.set_schedule("ring");
    const torch::Tensor own = train(flock, {});
    require_equal(own, train(flock, {.options = {.topology = "ring"}}), "the flock's own");
    require(!torch::equal(own, by_default), "the flock's own is another one");
    require_equal(train(flock, {.options = {.method = "gossip-pga(h=2)"}}),
                  train(flock, {.options = {.method = "gossip-pga(h=2)", .topology = "ring"}}),
                  "built upon it");
  });
}

}  // namespace
}  // namespace starling::train

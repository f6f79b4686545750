#include <csignal>
#include <gmock/gmock.h>
#include <thread>

#include "base/test_name.h"
#include "starling/fabric/forwarding.h"
#include "train/trained.h"

// Newcomers in a flock that trains: STARLING_TEST_FABRIC=c10d or hybrid.
namespace starling::train {
namespace {

class TrainerMembershipTest : public testing::TestWithParam<Launch> {
 protected:
  static std::vector<RankEnd> ends_of(Rank members, Rank newcomers, const RankBody& body) {
    return GetParam().launcher->run_with_newcomers(
        members, newcomers, [](Rank) {}, body);
  }
  static void expect_good(const std::vector<RankEnd>& ends) {
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message << " signal " << ends[r].signal;
  }
};

Flock flock_on(const std::shared_ptr<Fabric>& fabric) {
  Flock flock(fabric);
  flock.set_timeout(20s);
  return flock;
}

// Trains until a newcomer is admitted.
void train_until_admission(Trainer& trainer, const std::function<void()>& step) {
  for (int k = 0; !trainer.admit(); ++k) {
    require(k < 20'000, "nobody has come");
    step();
  }
}

// The parameters of all ranks, by rank.
std::vector<torch::Tensor> models(Trainer& trainer, const torch::nn::Module& module) {
  const torch::Tensor own = flat_parameters(module).contiguous();
  const std::vector<double> mine(own.data_ptr<double>(), own.data_ptr<double>() + own.numel());
  std::vector<double> all = trainer.flock().allgather(mine, "models");
  std::vector<torch::Tensor> result;
  for (Rank r = 0; r < trainer.flock().size(); ++r)
    result.push_back(torch::from_blob(all.data() + r * own.numel(), {own.numel()}, torch::kFloat64).clone());
  return result;
}

// One of three ranks is killed and the others continue. A newcomer takes its place with the model of one of
// them, and all reach consensus.
void return_of_one(const std::shared_ptr<Fabric>& fabric, const TrainerOptions& options) {
  Flock flock = flock_on(fabric);
  const bool later = flock.entered();
  const Rank number = later ? 2 : flock.rank();
  const NetworkPtr network = make_network("mlp", later ? 77 : 0);
  torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(later ? 9 : 0.1).momentum(0.5));
  Trainer trainer(flock, *network, sgd, options);
  if (!later) {
    for (Step t = 0; t < 10; ++t) {
      if (t == 6 && number == 1) raise(SIGKILL);
      train_step(trainer, *network, number, t);
    }
    train_until_admission(trainer, [&] { train_step(trainer, *network, number, trainer.steps()); });
  }
  flock = trainer.flock();
  require(flock.size() == 3 && flock.rank() == (later ? 2 : number == 2 ? 1 : 0), "the ranks");
  require(trainer.steps() >= 10, fmt::format("step {}", trainer.steps()));
  const auto steps = flock.allgather(std::vector<std::int64_t>{trainer.steps()}, "steps");
  require(steps[0] == steps[2] && steps[1] == steps[2], "the step");
  const auto all = models(trainer, *network);
  require(torch::equal(all[2], all[0]) || torch::equal(all[2], all[1]), "a neighbor's model");
  auto& settings = static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options());
  require(settings.lr() == 0.1, "a neighbor's learning rate");

  for (Step t = 0; t < 10; ++t) train_step(trainer, *network, number, trainer.steps());
  settings.lr(0);
  for (Step t = 0; t < 150; ++t) train_step(trainer, *network, number, trainer.steps());
  trainer.settle();
  const double distance = trainer.consensus_distance();
  require(distance < 1e-3, fmt::format("the models are {} apart", distance));
}

void expect_return(const std::vector<RankEnd>& ends) {
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (const std::size_t r : {0, 2, 3}) EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message;
}

TEST_P(TrainerMembershipTest, AReturningRankReceivesANeighborsModel) {
  expect_return(ends_of(3, 1, [](const std::shared_ptr<Fabric>& fabric) {
    return_of_one(fabric, {.method = "gradient-tracking", .topology = "ring", .on_peer_failure = "reweight"});
  }));
}

// If all ranks have the same data and use the mean gradient, they are equal in everything, including Adam's
// state, buffers and the loss scale.
TEST_P(TrainerMembershipTest, ANewcomerReceivesTheWholeTrainingState) {
  expect_good(ends_of(2, 2, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock = flock_on(fabric);
    const NetworkPtr network = make_network("conv", flock.entered() ? 5 : 0);
    const torch::Tensor buffer =
        network->register_buffer("seen", torch::full({3}, flock.entered() ? 0.0 : 7.0, torch::kFloat64));
    const OptimizerPtr adam = local_optimizer("adamw").make(network->parameters());
    Trainer trainer(flock, *network, *adam, {.method = "allreduce", .loss_scale = 8});
    const auto step = [&] {
      trainer.zero_grad();
      trainer.scale(loss_of(*network, 0, trainer.steps())).backward();
      trainer.step();
    };
    while (trainer.steps() < 5) step();
    while (trainer.flock().size() < 4) {
      std::this_thread::sleep_for(1ms);
      trainer.admit();
    }
    for (int k = 0; k < 5; ++k) step();
    require(trainer.flock().size() == 4 && buffer[0].item<double>() == 7, "the buffer");
    const auto all = models(trainer, *network);
    for (std::size_t r = 1; r < 4; ++r) require_equal(all[r], all[0], "the model");
  }));
}

// The members' small steps have not changed the rounded parameters; the newcomer gets them all the same.
TEST_P(TrainerMembershipTest, ANewcomerReceivesMasterWeights) {
  expect_good(ends_of(2, 1, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock = flock_on(fabric);
    const NetworkPtr network = make_network("mlp", flock.entered() ? 5 : 0, torch::kBFloat16);
    torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(1e-5).momentum(0.5));
    Trainer trainer(flock, *network, sgd, {.method = "allreduce", .master_weights = true});
    const auto step = [&] { train_step(trainer, *network, 0, trainer.steps()); };
    if (!flock.entered()) train_until_admission(trainer, step);
    for (int k = 0; k < 5; ++k) step();
    const torch::Tensor x = trainer.flat_parameters()[0];
    const std::vector<float> mine(x.data_ptr<float>(), x.data_ptr<float>() + x.numel());
    const std::vector<float> all = trainer.flock().allgather(mine, "master weights");
    for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == all[i % mine.size()], "the weights");
  }));
}

/// A network that flips a bit in messages of this length.
class Damaging : public ForwardingFabric {
 public:
  Damaging(std::shared_ptr<Fabric> inner, std::size_t bytes)
      : ForwardingFabric(std::move(inner)), bytes_(bytes) {}
  std::optional<Arrival> poll(Rank source) override {
    auto arrival = ForwardingFabric::poll(source);
    // The memory is lent read-only, but it belongs to this process.
    if (arrival && arrival->bytes().size() == bytes_)
      const_cast<std::byte&>(arrival->bytes()[3]) ^= std::byte{1};
    return arrival;
  }

 private:
  std::size_t bytes_;
};

TEST_P(TrainerMembershipTest, RefusesADamagedModel) {
  const auto ends = ends_of(2, 1, [](const std::shared_ptr<Fabric>& fabric) {
    const bool later = fabric->admission()->newcomers() > 0;
    const NetworkPtr network = make_network("mlp");
    const std::size_t tensor = network->parameters()[0].nbytes();
    Flock flock = flock_on(later ? std::make_shared<Damaging>(fabric, tensor) : fabric);
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {.on_peer_failure = "reweight"});
    train_until_admission(trainer, [&] { train_step(trainer, *network, flock.rank(), trainer.steps()); });
    for (int k = 0; k < 5; ++k) train_step(trainer, *network, flock.rank(), trainer.steps());
  });
  EXPECT_TRUE(ends[0].ok && ends[1].ok) << ends[0].message << ends[1].message;
  EXPECT_FALSE(ends[2].ok);
  EXPECT_THAT(ends[2].message,
              testing::ContainsRegex("the model that rank 2 received is not what rank [01] has sent"));
}

TEST_P(TrainerMembershipTest, WithoutNewcomersNothingChanges) {
  expect_good(ends_of(2, 0, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock = flock_on(fabric);
    torch::Tensor results[2];
    for (const bool admits : {false, true}) {
      const NetworkPtr network = make_network("mlp", flock.rank());
      torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      Trainer trainer(flock, *network, sgd, {.method = "diging", .eager = true});
      for (Step t = 0; t < 6; ++t) {
        if (admits) require(!trainer.admit(), "no newcomer");
        train_step(trainer, *network, flock.rank(), t);
      }
      results[admits] = flat_parameters(*network).clone();
      trainer.zero_grad();
      loss_of(*network, flock.rank(), 6).backward();
      message_of<InvalidArgument>([&] { trainer.admit(); });
      trainer.step();
    }
    require_equal(results[1], results[0], "admit()");
  }));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TrainerMembershipTest);
INSTANTIATE_TEST_SUITE_P(Newcomers, TrainerMembershipTest, testing::ValuesIn(launches_with_newcomers(3)),
                         launch_name);

// Every kind of method; `./run conformance` runs these tests.
struct MethodCase {
  Launch launch;
  TrainerOptions options;
};
class MethodMembershipTest : public testing::TestWithParam<MethodCase> {};

TEST_P(MethodMembershipTest, AReturningRankReceivesANeighborsModel) {
  expect_return(GetParam().launch.launcher->run_with_newcomers(
      3, 1, [](Rank) {},
      [options = GetParam().options](const std::shared_ptr<Fabric>& fabric) {
        return_of_one(fabric, options);
      }));
}

std::vector<MethodCase> method_cases() {
  std::vector<MethodCase> all;
  for (const Launch& launch : launches_with_newcomers(4))
    for (const auto& [method, topology, eager] :
         std::vector<std::tuple<std::string, std::string, bool>>{{"dsgd-awc", "one-peer-exponential", false},
                                                                 {"dsgd-awc", "ring", true},
                                                                 {"dsgd-atc", "ceca", false},
                                                                 {"push-sum", "exponential", false},
                                                                 {"exact-diffusion", "ring", false},
                                                                 {"relay-sgd", "double-binary-trees", false},
                                                                 {"allreduce", "ring", false},
                                                                 {"choco(codec=bf16)", "ring", false},
                                                                 {"win-put", "ring", false}})
      all.push_back(
          {launch, {.method = method, .topology = topology, .eager = eager, .on_peer_failure = "reweight"}});
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MethodMembershipTest);
INSTANTIATE_TEST_SUITE_P(Newcomers, MethodMembershipTest, testing::ValuesIn(method_cases()),
                         [](const auto& test) {
                           return test_name(fmt::format(
                               "{}_{}_{}{}", test.param.launch.launcher->name, test.param.options.method,
                               test.param.options.topology, test.param.options.eager ? "_eager" : ""));
                         });

}  // namespace
}  // namespace starling::train

#include <cmath>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "base/test_name.h"
#include "flock/deaths.h"
#include "method/on_flock.h"

// A rank is killed in the middle of training, and the others continue.

namespace starling::method {
namespace {

constexpr Rank kDeathRanks = 4;
constexpr Rank kDeathVictim = 2;

/// The optimum of the survivors' objectives.
Vector optimum_of_survivors(const Problem& problem) {
  Vector best(problem.count);
  for (std::size_t k = 0; k < problem.count; ++k) {
    Number weights = 0;
    for (Rank rank = 0; rank < problem.n; ++rank) {
      if (rank == kDeathVictim) continue;
      best[k] += static_cast<Number>(problem.curvature(rank, k)) * problem.minimum(rank, k);
      weights += problem.curvature(rank, k);
    }
    best[k] /= weights;
  }
  return best;
}

struct DeathCase {
  std::string method;
  std::string topology;
  double near;  // the allowed distance from the survivors' optimum at the end
  std::string optimizer = "sgd(lr=0.1)";
};

void PrintTo(const DeathCase& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

using AtTheEnd = std::function<void(Flock& flock, Driver& driver, const std::vector<double>& x)>;

/// Runs `steps` steps on all ranks; `check` runs on every survivor afterwards.
DeathRun& train(DeathRun& run, const DeathCase& one, Step steps, const AtTheEnd& check) {
  run.run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    const Problem problem{.n = kDeathRanks, .equal_starts = true};
    auto x = problem.start_of<double>(flock.rank());
    std::vector<double> gradient(x.size());
    Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                          {.method = one.method, .topology = one.topology, .optimizer = one.optimizer});
    for (Step step = 0; step < steps; ++step) {
      driver.begin();
      problem.gradient(flock.rank(), x.data(), gradient.data());
      driver.finish();
    }
    check(flock, driver, x);
  });
  return run;
}

void expect_survivors(const DeathRun& run, const DeathCase& one) {
  EXPECT_EQ(run.end(kDeathVictim).signal, SIGKILL);
  for (Rank rank = 0; rank < kDeathRanks; ++rank)
    EXPECT_TRUE(rank == kDeathVictim || run.end(rank).ok) << one.method << ": " << run.end(rank).message;
}

class MethodDeathTest : public testing::TestWithParam<DeathCase> {};

TEST_P(MethodDeathTest, TheSurvivorsReachTheirOwnOptimum) {
  for (const std::uint64_t kill_at_post : {0U, 17U, 50U}) {
    DeathRun run(kDeathRanks, {.kill_at_post = {{kDeathVictim, kill_at_post}}}, 0);
    train(run, GetParam(), 700, [&](Flock& flock, Driver& driver, const std::vector<double>&) {
      require(flock.view().members.size() == 3, "members");
      const Vector best = optimum_of_survivors({.n = kDeathRanks});
      const auto* model = driver.method().model(driver[0]).host<double>();
      for (std::size_t k = 0; k < best.size(); ++k)
        require(std::abs(model[k] - static_cast<double>(best[k])) < GetParam().near,
                fmt::format("ends at {}, {} from the survivors' optimum", model[k],
                            std::abs(model[k] - static_cast<double>(best[k]))));
    });
    expect_survivors(run, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MethodDeathTest,
    testing::Values(
        DeathCase{"allreduce", "ring", 1e-9}, DeathCase{"parameter-server", "ring", 1e-9},
        DeathCase{"gradient-tracking", "exponential", 1e-9},
        DeathCase{"gradient-tracking", "one-peer-exponential", 1e-9}, DeathCase{"relay-sgd", "chain", 1e-9},
        DeathCase{"relay-sgd(missing=own)", "binary-tree", 1e-9},
        DeathCase{"relay-sgd(missing=reference)", "star", 1e-9}, DeathCase{"allreduce-model", "ring", 0.1},
        DeathCase{"local-sgd(tau=4)", "ring", 0.3}, DeathCase{"dsgd-atc", "one-peer-exponential", 0.3},
        DeathCase{"dsgd-atc", "ceca", 0.3}, DeathCase{"dsgd-awc", "exponential", 0.3},
        DeathCase{"gossip-pga(h=3)", "ring", 0.3}, DeathCase{"hierarchical", "ring", 0.3},
        DeathCase{"push-sum", "exponential", 0.3}, DeathCase{"dadam", "exponential", 1, "adam(lr=0.02)"},
        DeathCase{"accum-adam(s=2)", "exponential", 1, "adam(lr=0.02)"},
        DeathCase{"accum-adamw(s=2)", "exponential", 1, "adamw(lr=0.02)"}, DeathCase{"extra", "ring", 1e-9},
        DeathCase{"exact-diffusion", "ring", 1e-9}, DeathCase{"d2", "ring", 1e-9},
        DeathCase{"diging", "exponential", 1e-9}, DeathCase{"push-diging", "exponential", 1e-9},
        DeathCase{"proxskip(p=0.5)", "ring", 1e-9}, DeathCase{"relay-sgd(overlap=true)", "chain", 1e-9},
        DeathCase{"relay-sum-grad", "chain", 0.3},
        DeathCase{"quasi-global-momentum(mu=0.5)", "exponential", 0.3},
        DeathCase{"lag(threshold=0.001)", "ring", 0.3},
        DeathCase{"choco(codec=identity,gamma=0.8)", "ring", 0.3},
        DeathCase{"choco(codec=top-k(fraction=0.5),gamma=0.3)", "ring", 0.5},
        DeathCase{"bytegrad", "ring", 0.05}, DeathCase{"powersgd", "ring", 1e-5},
        DeathCase{"qsgd(levels=127)", "ring", 0.1},
        DeathCase{"compressed-allreduce(codec=top-k(fraction=0.5))", "ring", 0.05},
        DeathCase{"low-precision-ring", "ring", 0.5}, DeathCase{"sign-sgd", "ring", 1.5, "sgd(lr=0.01)"},
        DeathCase{"qadam(warmup=10)", "ring", 0.5, "adam(lr=0.01)"},
        DeathCase{"async-average(staleness=2)", "ring", 1}, DeathCase{"diloco(h=4)", "ring", 0.5},
        DeathCase{"noloco(h=4)", "random-matching", 0.8, "sgd(lr=0.005)"}),
    [](const testing::TestParamInfo<DeathCase>& test) {
      return test_name(test.param.method + "_" + test.param.topology);
    });

// Window methods post no messages, so the victim kills itself in a step; its last deposits may or may not
// remain.
TEST(AsynchronousDeathTest, TheSurvivorsContinue) {
  for (const char* method : {"win-put", "async-push-sum", "ad-psgd", "async-average"})
    for (const Step last : {0, 1, 20}) {
      DeathRun run(kDeathRanks, {}, 0);
      run.run([&](const std::shared_ptr<Fabric>& fabric) {
        Flock flock(fabric);
        flock.on_peer_failure(OnPeerFailure::reweight);
        flock.set_timeout(std::chrono::seconds(20));
        const Problem problem{.n = kDeathRanks, .equal_starts = true};
        auto x = problem.start_of<double>(flock.rank());
        std::vector<double> gradient(x.size());
        Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                              {.method = method, .topology = "ring", .optimizer = "sgd(lr=0.05)"});
        for (Step step = 0; step < 400; ++step) {
          driver.begin();
          problem.gradient(flock.rank(), x.data(), gradient.data());
          if (flock.rank() == kDeathVictim && step == last) raise(SIGKILL);
          driver.finish();
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        for (const double value : x) require(std::abs(value) < 4, fmt::format("{} at the end", value));
      });
      expect_survivors(run, {method, "ring", 0});
    }
}

// The dead rank's part of y is lost, so y must sum to the survivors' gradients again.
TEST(TrackingDeathTest, TheTrackedSumIsTheSumOfGradientsAgain) {
  const DeathCase one{"gradient-tracking", "exponential", 0};
  DeathRun run(kDeathRanks, {.kill_at_post = {{kDeathVictim, 23}}}, 0);
  train(run, one, 30, [](Flock& flock, Driver& driver, const std::vector<double>& x) {
    const auto sum_of = [&](const char* state) {
      std::vector<double> sum(x.size());
      std::memcpy(sum.data(), driver[0].state(state).host_data(), x.size() * sizeof(double));
      return flock.allreduce(sum, Reduction::sum, state);
    };
    const std::vector<double> y = sum_of("y");
    const std::vector<double> g = sum_of("old gradient");
    for (std::size_t k = 0; k < y.size(); ++k)
      require(std::abs(y[k] - g[k]) < 1e-12, fmt::format("sum of y is {}, of g {}", y[k], g[k]));
  });
  expect_survivors(run, one);
}

// With zero updates, a period of CECA is an exact average, also among the survivors.
TEST(CecaDeathTest, ThePeriodRestarts) {
  DeathRun run(5, {.kill_at_post = {{kDeathVictim, 20}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    std::vector<double> x = {1};
    std::vector<double> gradient = {0};
    Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                          {.method = "dsgd-atc", .topology = "ceca", .optimizer = "sgd(lr=1)"});
    for (Step step = 0; step < 40; ++step) driver.finish();
    // After an increment in any round and two periods without one, all ranks hold the mean.
    require(flock.view().members.size() == 4, "the view");
    gradient = {-1.0 * flock.rank()};
    driver.finish();
    gradient = {0};
    for (int step = 0; step < 4; ++step) driver.finish();
    const double model = driver.method().model(driver[0]).host<double>()[0];
    for (const double other : flock.allgather(std::vector{model}))
      require(std::abs(other - 1 - (0 + 1 + 3 + 4) / 4.0) < 1e-12, fmt::format("{}", other));
  });
  EXPECT_EQ(run.end(kDeathVictim).signal, SIGKILL);
  for (const Rank rank : {0, 1, 3, 4}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

TEST(MethodDeathsTest, NoRankContinuesWithoutTheServer) {
  DeathRun run(3, {.kill_at_post = {{0, 20}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    std::vector<float> x(3), gradient(3);
    Driver driver = drive(flock, buffer_of(x), buffer_of(gradient), {.method = "parameter-server"});
    for (int step = 0; step < 1000; ++step) driver.finish();
  });
  for (const Rank rank : {1, 2})
    EXPECT_NE(run.end(rank).message.find("rank 0 is lost"), std::string::npos) << run.end(rank).message;
}

TEST(MethodDeathsTest, WithoutReweightingEveryMethodNamesTheDeadRank) {
  for (const char* method :
       {"allreduce", "dsgd-awc", "dsgd-atc", "gradient-tracking", "relay-sgd", "push-sum", "parameter-server",
        "extra", "exact-diffusion", "d2", "diging", "push-diging", "proxskip(p=1)", "quasi-global-momentum",
        "diloco(h=2)", "lag(threshold=0.1)", "relay-sum-grad"}) {
    DeathRun run(3, {.kill_at_post = {{2, 20}}}, 0);
    run.run([&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(std::chrono::seconds(20));
      std::vector<float> x(3), gradient(3);
      Driver driver = drive(flock, buffer_of(x), buffer_of(gradient), {.method = method, .topology = "star"});
      for (int step = 0; step < 1000; ++step) driver.finish();
    });
    EXPECT_NE(run.end(0).message.find("rank 2 is lost"), std::string::npos)
        << method << ": " << run.end(0).message;
    EXPECT_FALSE(run.end(1).ok) << method;
  }
}

}  // namespace
}  // namespace starling::method

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <signal.h>

#include "flock/deaths.h"
#include "method/on_flock.h"
#include "starling/topology/registry.h"

// Compares messages of one byte per element with a dense computation of their definition.

namespace starling::method {
namespace {

using Models = std::vector<std::vector<float>>;  // by rank

constexpr std::size_t kInt8Count = 1237;
constexpr std::size_t kInt8Parameters = 4;
constexpr std::size_t kScaledTogether = 512;

/// The values that the others decode: in each run of a parameter, the nearest of 255 levels between its
/// minimum and maximum.
std::vector<float> told(const std::vector<float>& x) {
  std::vector<float> values(x.size());
  for (std::size_t p = 0; p < kInt8Parameters; ++p) {
    const std::size_t last = cut(x.size(), p + 1, kInt8Parameters);
    for (std::size_t begin = cut(x.size(), p, kInt8Parameters); begin < last; begin += kScaledTogether) {
      const std::size_t end = std::min(last, begin + kScaledTogether);
      const auto from = x.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = x.begin() + static_cast<std::ptrdiff_t>(end);
      const auto [least, greatest] = std::minmax_element(from, to);
      const auto middle = static_cast<float>((double{*least} + double{*greatest}) / 2);
      const float reach = std::max(*greatest - middle, middle - *least);
      const float scale = 127 / reach, step = reach / 127;
      for (std::size_t i = begin; i < end; ++i)
        values[i] = std::nearbyint((x[i] - middle) * scale) * step + middle;
    }
  }
  return values;
}

/// Every rank's x + sum of w_ij (q_j - q_i).
Models mixed(const Schedule& schedule, Step step, const Models& models) {
  Models sent, result = models;
  for (const auto& x : models) sent.push_back(told(x));
  for (Rank rank = 0; rank < static_cast<Rank>(models.size()); ++rank) {
    const auto own = static_cast<std::size_t>(rank);
    const Exchange exchange = schedule.exchange(step, rank);
    std::vector<std::pair<std::size_t, float>> heard;
    for (const Source& source : exchange.sources)
      heard.emplace_back(source.rank, static_cast<float>(source.weight));
    for (std::int64_t i = 0; i < exchange.group.size(); ++i)
      if (exchange.group[i] != rank)
        heard.emplace_back(exchange.group[i],
                           static_cast<float>(1.0 / static_cast<double>(exchange.group.size())));
    for (std::size_t i = 0; i < kInt8Count; ++i) {
      float sum = 0;
      for (const auto& [from, weight] : heard) sum += weight * (sent[from][i] - sent[own][i]);
      result[own][i] = models[own][i] + sum;
    }
  }
  return result;
}

MethodRun int8_run(const std::string& method, const std::string& topology, Rank n, double lr) {
  MethodRun run;
  run.problem = {.n = n, .count = kInt8Count};
  run.options = {
      .method = method, .topology = topology, .optimizer = fmt::format("sgd(lr={})", lr), .message = "int8"};
  run.parts = 2;
  run.parameters = kInt8Parameters;
  return run;
}

Models starts_of(const Problem& problem) {
  Models models;
  for (Rank rank = 0; rank < problem.n; ++rank) models.push_back(problem.start_of<float>(rank));
  return models;
}

/// Returns x - lr g, with the gradient g taken at `at`.
Models stepped(const Problem& problem, const Models& x, const Models& at, float lr) {
  Models result = x;
  std::vector<float> gradient(kInt8Count);
  for (std::size_t r = 0; r < x.size(); ++r) {
    problem.gradient(static_cast<Rank>(r), at[r].data(), gradient.data());
    for (std::size_t i = 0; i < kInt8Count; ++i) result[r][i] -= lr * gradient[i];
  }
  return result;
}

TEST(Int8Messages, AStepIsTheEquation) {
  constexpr float kLr = 0.0625F;
  for (const Rank n : {3, 4})
    for (const char* topology : {"ring", "one-peer-exponential", "complete"}) {
      const MethodRun awc = int8_run("dsgd-awc", topology, n, double{kLr});
      const Models x = starts_of(awc.problem);
      const SchedulePtr schedule = make_schedule(topology, n);
      const Models while_mixing = stepped(awc.problem, mixed(*schedule, 0, x), x, kLr);
      const Models before_mixing = mixed(*schedule, 0, stepped(awc.problem, x, x, kLr));
      for (const auto& [method, expected] :
           {std::pair{"dsgd-awc", while_mixing}, std::pair{"dsgd-atc", before_mixing}}) {
        MethodRun run = int8_run(method, topology, n, double{kLr});
        run.steps = 1;
        const auto found = trajectory<float>(run);
        for (Rank rank = 0; rank < n; ++rank) {
          const std::vector<float> last = found.last(rank);
          for (std::size_t i = 0; i < kInt8Count; ++i)
            ASSERT_NEAR(last[i], expected[static_cast<std::size_t>(rank)][i], 5e-7)
                << method << " on " << topology << ", rank " << rank << ", element " << i;
        }
      }
    }
}

// The reference rounds as the kernels do, so the bits are equal on every fabric and for any division of x
// into blocks.
TEST(Int8Messages, MixingHasTheSameBitsEverywhere) {
  for (const auto& [n, topology] : {std::pair{Rank{3}, "exponential"}, {Rank{4}, "one-peer-exponential"}}) {
    MethodRun run = int8_run("dsgd-awc", topology, n, 0);
    run.steps = 4;
    Models expected = starts_of(run.problem);
    const SchedulePtr schedule = make_schedule(topology, n);
    std::vector<Models> history;
    for (Step step = 0; step < run.steps; ++step) {
      expected = mixed(*schedule, step, expected);
      history.push_back(expected);
    }
    const auto expect_history = [&, n = n] {
      const auto found = trajectory<float>(run);
      for (Rank rank = 0; rank < n; ++rank)
        for (Step step = 0; step < run.steps; ++step)
          ASSERT_EQ(found.at(rank, step),
                    history[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)])
              << "on " << run.launcher->name << " in " << run.parts << " parts, step " << step;
    };
    for (const Launcher& launcher : launchers()) {
      run.launcher = &launcher;
      expect_history();
    }
    for (const std::size_t parts : {1U, 4U}) {
      run.parts = parts;
      expect_history();
    }
  }
}

TEST(Int8Messages, ANaNMakesOnlyItsRunNaN) {
  for (const float strange :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto ends = launchers()[0].run(2, [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(30s);
      std::vector<float> x(2000, 1.0F + static_cast<float>(flock.rank())), gradient(2000);
      if (flock.rank() == 1) x[600] = strange;
      Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                            {.method = "dsgd-atc", .topology = "ring", .message = "int8"});
      driver.finish();
      for (std::size_t i = 0; i < x.size(); ++i)
        if (i / kScaledTogether == 600 / kScaledTogether)
          require(std::isnan(x[i]), fmt::format("element {} is {}", i, x[i]));
        else
          require(x[i] == 1.5F, fmt::format("element {} is {}", i, x[i]));
    });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  }
}

// A dead neighbor's weight goes to the ranks that would have received from it, so the survivors' mean does
// not change.
TEST(Int8Messages, SurvivorsKeepTheirMean) {
  constexpr Rank kAll = 4, kLost = 2;
  DeathRun run(kAll, {}, 0);
  run.run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    const Problem problem{.n = kAll, .count = kInt8Count};
    auto x = problem.start_of<float>(flock.rank());
    std::vector<float> gradient(x.size());
    Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                          {.topology = "ring", .optimizer = "sgd(lr=0)", .message = "int8"});
    const auto mean_of = [&](const std::vector<float>& all, bool with_victim) {
      std::vector<double> mean(kInt8Count);
      for (std::size_t r = 0; r < all.size() / kInt8Count; ++r)
        for (std::size_t i = 0; i < kInt8Count && (r != kLost || !with_victim); ++i)
          mean[i] += double{all[r * kInt8Count + i]} / (kAll - 1);
      return mean;
    };
    for (int step = 0; step < 3; ++step) driver.finish();
    const std::vector<double> before = mean_of(flock.allgather(x), true);
    flock.barrier();
    if (flock.rank() == kLost) raise(SIGKILL);
    for (int step = 0; step < 60; ++step) driver.finish();
    const std::vector<float> all = flock.allgather(x);
    require(all.size() == (kAll - 1) * kInt8Count, "survivors");
    const std::vector<double> after = mean_of(all, false);
    for (std::size_t i = 0; i < kInt8Count; ++i) {
      require(std::abs(after[i] - before[i]) < 2e-6,
              fmt::format("the mean of element {} went from {} to {}", i, before[i], after[i]));
      require(std::abs(double{x[i]} - after[i]) < 0.03, fmt::format("element {} is {}", i, x[i]));
    }
  });
  EXPECT_EQ(run.end(kLost).signal, SIGKILL);
  for (const Rank rank : {0, 1, 3}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

// The correction terms add up differences of rounded messages, and the method still ends near the optimum.
TEST(Int8Messages, ExactMethodsEndNearTheOptimum) {
  for (const char* method : {"extra", "exact-diffusion", "gradient-tracking"}) {
    MethodRun run = int8_run(method, "ring", 4, 0.1);
    run.problem.count = 7;
    run.parts = 0;
    run.steps = 500;
    const auto found = trajectory<float>(run);
    const Vector best = run.problem.optimum();
    for (const Step step : {Step{250}, Step{499}})
      for (Rank rank = 0; rank < 4; ++rank) {
        const std::vector<float> x = found.at(rank, step);
        for (std::size_t i = 0; i < x.size(); ++i)
          ASSERT_NEAR(x[i], static_cast<double>(best[i]), 0.05) << method << " after " << step;
      }
  }
}

// The optimizer's pass encodes and decodes whole runs; blocks whose segments cut runs are trained as well.
TEST(Int8Messages, SegmentsMayCutRuns) {
  const auto ends = launchers()[0].run(2, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    const Problem problem{.n = 2, .count = kInt8Count};
    const auto train = [&](const std::string& name, const std::vector<Segment>& segments) {
      auto x = problem.start_of<float>(flock.rank());
      std::vector<float> gradient(x.size());
      const auto hypers = std::make_shared<std::vector<Hyper>>(1, Hyper{.lr = 0.1, .momentum = 0.9});
      std::vector<std::unique_ptr<Block>> blocks;
      blocks.push_back(std::make_unique<Block>(
          name, buffer_of(x), buffer_of(gradient), segments, make_sgd(buffer_of(x), segments.size(), hypers),
          make_flock_channel(flock, name, {make_schedule("ring", 2), "int8", {}})));
      Driver driver(make_method("dsgd-awc"), std::move(blocks));
      for (int step = 0; step < 10; ++step) {
        driver.begin();
        problem.gradient(flock.rank(), x.data(), gradient.data());
        driver.finish();
      }
      driver.settle();
      return x;
    };
    const auto whole = train("whole", {{0, kInt8Count, 0}});
    require(train("at runs", {{0, 512, 0}, {512, kInt8Count - 512, 0}}) == whole, "parts of whole runs");
    require(train("cut", {{0, 300, 0}, {300, kInt8Count - 300, 0}}) == whole, "parts that cut a run");
  });
  for (const auto& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

}  // namespace
}  // namespace starling::method

// Covers membership, operation and collective of starling/flock with ranks that die at random moments.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "flock/deaths.h"
#include "starling/flock/flock.h"

// SIGKILL and SIGSTOP at random moments.

namespace starling::flock {
namespace {

TEST(SoakTest, KilledAndStoppedAtRandomMoments) {
  const std::vector<std::string> specs = {
      "exponential", "one-peer-exponential",    "ring", "od-equidyn(seed=3)",
      "base(k=1)",   "random-matching(seed=1)", "star", "grid"};
  unsigned killed = 0;
  for (unsigned seed = 0; seed < soak_runs(); ++seed) {
    std::mt19937 random(seed);
    const auto n = static_cast<Rank>(2 + random() % 7);
    const auto moment = [&] { return static_cast<unsigned>(random() % 15'000); };
    const auto draw = [&] { return static_cast<Rank>(random() % static_cast<unsigned>(n)); };
    Mishaps mishaps;
    mishaps.kill_after[draw()] = moment();
    if (n > 3 && random() % 2 == 0) mishaps.kill_after[draw()] = moment();
    if (random() % 3 == 0) mishaps.stop_after[draw()] = moment();
    const bool collectives = random() % 3 == 0;
    const std::string& spec = specs[random() % specs.size()];
    DeathRun run(n, mishaps, collectives ? 150 : 1500);
    if (collectives) {
      run.collectives();
      ASSERT_EQ(run.problem_with_results(), "") << fmt::format("seed {}: collectives of {} ranks", seed, n);
    } else {
      run.neighbor_averages(spec);
      ASSERT_EQ(run.problem_with_steps(spec), "") << fmt::format("seed {}: {} on {} ranks", seed, spec, n);
    }
    killed += static_cast<unsigned>(static_cast<std::size_t>(n) - run.survivors().size());
  }
  EXPECT_GT(killed, 0U) << "no rank was killed in time: the moments are too late for this machine";
  RecordProperty("killed", static_cast<int>(killed));
}

TEST(SoakTest, HugeMessages) {
  // More than 2^31 bytes in a soak, less in everyday tests.
  const std::size_t count = std::getenv("STARLING_SOAK") == nullptr ? 30'000'001 : 560'000'001;  // floats
  const auto& all = launchers();
  const auto processes =
      std::find_if(all.begin(), all.end(), [](const Launcher& one) { return one.processes; });
  const auto ends = processes->run(2, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    const auto expect = [](const std::vector<float>& x, std::size_t i, float value) {
      if (x[i] != value) throw Error(fmt::format("element {} is {} and not {}", i, x[i], value));
    };
    std::vector<float> x(count, static_cast<float>(flock.rank()));
    x[count - 1] += 10;
    flock.neighbor_allreduce(x);
    for (const std::size_t i : {std::size_t{0}, count / 2, count - 2}) expect(x, i, 0.5F);
    expect(x, count - 1, 10.5F);
    flock.allreduce(x);
    for (const std::size_t i : {std::size_t{0}, count / 2, count - 2}) expect(x, i, 1);
    expect(x, count - 1, 21);
    if (flock.rank() == 0) x[count - 1] = 7;
    if (flock.rank() == 0) flock.send(x, 1);
    if (flock.rank() == 1) flock.recv(x, 0);
    expect(x, count - 1, 7);
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

}  // namespace
}  // namespace starling::flock

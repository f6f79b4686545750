#include "starling/flock/membership.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include "fabric/harness.h"
#include "flock/deaths.h"
#include "starling/fabric/local/local.h"
#include "starling/topology/registry.h"

// Membership after deaths: everybody does a step in the same view, and what is computed is always an average.

namespace starling {
namespace {

TEST(MembershipTest, AllDoAStepInTheSameView) {
  // Ranks 0..3 start steps at their own pace while 4 and 5 are reported lost by whoever comes across it.
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto fabrics = local_threads(6);
    constexpr Step kSteps = 200;
    std::vector<std::vector<std::shared_ptr<const View>>> views(4);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 4; ++r)
      threads.emplace_back([&, r] {
        Membership membership(*fabrics[r]);
        std::mt19937 random(seed * 4 + static_cast<unsigned>(r));
        for (Step step = 0; step < kSteps; ++step) {
          if (random() % 150 == 0) membership.lost(4);
          if (random() % 150 == 0) membership.lost(5);
          views[r].push_back(membership.start(step));
          if (random() % 20 == 0) std::this_thread::yield();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t r = 1; r < 4; ++r) {
        ASSERT_EQ(views[r][step]->epoch, views[0][step]->epoch) << "seed " << seed << " step " << step;
        ASSERT_EQ(views[r][step]->members, views[0][step]->members);
      }
  }
}

TEST(MembershipTest, AViewHoldsFromAfterTheLastStartedStep) {
  const auto fabrics = local_threads(3);
  Membership ahead(*fabrics[0]);
  Membership behind(*fabrics[1]);
  for (Step step = 0; step <= 7; ++step) ahead.start(step);
  behind.start(0);
  behind.lost(2);
  EXPECT_EQ(behind.start(1)->epoch, 0U);  // ahead has begun 1..7 with everybody
  EXPECT_EQ(behind.newest()->first_step, 8);
  EXPECT_EQ(behind.start(7)->epoch, 0U);
  EXPECT_EQ(behind.start(8)->epoch, 1U);
  EXPECT_EQ(ahead.start(8)->members, (std::vector<Rank>{0, 1}));
}

/// What all ranks did in a run in which some were killed.
class KillTest : public testing::Test {
 protected:
  static void check_steps(const DeathRun& run, const std::string& spec, const std::string& what) {
    const std::vector<Rank> alive = run.survivors();
    std::map<Rank, std::vector<DeathRun::Row>> rows_of;
    for (const Rank rank : alive) rows_of[rank] = run.rows(rank);
    for (std::size_t k = 0; k < static_cast<std::size_t>(run.steps()); ++k) {
      std::map<Rank, const DeathRun::Row*> rows;
      for (const Rank rank : alive) {
        ASSERT_GT(rows_of.at(rank).size(), k) << what;
        rows[rank] = &rows_of.at(rank)[k];
      }
      const std::uint32_t epoch = rows.begin()->second->epoch;
      for (const auto& [rank, row] : rows) {
        ASSERT_EQ(row->step, static_cast<Step>(k)) << what;
        ASSERT_EQ(row->epoch, epoch) << what << " step " << k;
        ASSERT_NEAR(row->sum(), 1, 1e-12) << what << " step " << k << " rank " << rank;
        for (const auto& [source, weight] : row->sources)
          if (rows.count(source) > 0) {
            ASSERT_TRUE(rows[source]->destinations.count(rank) > 0)
                << what << " step " << k << ": " << rank << " heard " << source << ", who did not tell it";
          }
        for (const Rank to : row->destinations)
          if (rows.count(to) > 0) {
            ASSERT_TRUE(rows[to]->sources.count(rank) > 0)
                << what << " step " << k << ": " << rank << " told " << to << ", who did not hear it";
          }
      }
      if (epoch == 0) continue;
      // From the agreed step on everybody follows the schedule over the live members.
      const std::vector<Rank> members = run.members_after(epoch);
      const auto live = make_schedule(
          fmt::format("live({},members=[{}])", spec, fmt::join(members, ",")), run.size());
      for (const auto& [rank, row] : rows)
        for (const Source& source : live->exchange(static_cast<Step>(k), rank).sources)
          if (rows.count(source.rank) > 0) {
            ASSERT_EQ(row->sources.at(source.rank), source.weight) << what << " step " << k;
          }
    }
  }
};

TEST_F(KillTest, EveryStepIsAnAverageOfTheLiving) {
  const std::vector<std::string> specs = {"exponential", "one-peer-exponential", "ring", "od-equidyn(seed=3)",
                                          "base(k=1)"};
  for (unsigned seed = 0; seed < 15; ++seed) {
    std::mt19937 random(seed);
    const Rank n = static_cast<Rank>(3 + random() % 6);
    const std::string& spec = specs[seed % specs.size()];
    std::map<Rank, std::uint64_t> kills = {{static_cast<Rank>(random() % static_cast<unsigned>(n)), random() % 120}};
    if (n > 4) kills[static_cast<Rank>(random() % static_cast<unsigned>(n))] = random() % 120;
    const std::string what = fmt::format("seed {}: {} on {} ranks", seed, spec, n);
    DeathRun run(n, kills, 300);
    run.neighbor_averages(spec);
    for (const Rank rank : run.survivors()) ASSERT_TRUE(run.end(rank).ok) << what << ": " << run.end(rank).message;
    check_steps(run, spec, what);
    ASSERT_EQ(run.survivors().size() + kills.size(), static_cast<std::size_t>(n)) << what;
    for (const Rank rank : run.survivors())
      ASSERT_NEAR(run.result(rank), run.result(run.survivors()[0]), 1e-9) << what << ": no consensus";
  }
}

TEST_F(KillTest, CollectivesHaveTheSameContributorsEverywhere) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed + 100);
    const Rank n = static_cast<Rank>(3 + random() % 4);
    std::map<Rank, std::uint64_t> kills = {{static_cast<Rank>(random() % static_cast<unsigned>(n)), random() % 200}};
    if (n > 4) kills[static_cast<Rank>(random() % static_cast<unsigned>(n))] = random() % 200;
    const std::string what = fmt::format("seed {}: collectives on {} ranks", seed, n);
    DeathRun run(n, kills, 40);
    run.collectives();
    const std::vector<Rank> alive = run.survivors();
    for (const Rank rank : alive) {
      ASSERT_TRUE(run.end(rank).ok) << what << ": rank " << rank << ": " << run.end(rank).message;
      ASSERT_EQ(run.results(rank), run.results(alive[0])) << what << ": rank " << rank << " got something else";
    }
  }
}

TEST_F(KillTest, WithoutReweightingThoseConcernedAreToldWithinTheBound) {
  DeathRun run(3, {{2, 20}}, 1000);
  run.neighbor_averages_that_raise("ring");
  for (const Rank rank : {0, 1}) {
    EXPECT_FALSE(run.end(rank).ok);
    EXPECT_NE(run.end(rank).message.find("rank 2 is lost: neighbor_allreduce"), std::string::npos)
        << run.end(rank).message;
  }
}

}  // namespace
}  // namespace starling

#include "starling/flock/membership.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <signal.h>
#include <thread>

#include "fabric/harness.h"
#include "flock/deaths.h"
#include "flock/interleaved_board.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"
#include "starling/topology/registry.h"

// Membership after deaths: everybody does a step in the same view, and what is computed is always an average.

namespace starling {
namespace {

TEST(MembershipTest, AllDoAStepInTheSameViewHoweverTheyInterleave) {
  // Four ranks start steps at their own pace; 4 and 5 take no part and are reported lost by whoever "sees" it.
  for (unsigned seed = 0; seed < 300; ++seed) {
    constexpr Step kSteps = 8;
    std::vector<std::vector<std::shared_ptr<const View>>> views(6);
    Interleaving(6, seed).run([&](Fabric& fabric) {
      if (fabric.rank() > 3) return;
      Membership membership(fabric);
      std::mt19937 random(seed * 6 + static_cast<unsigned>(fabric.rank()));
      for (Step step = 0; step < kSteps; ++step) {
        if (random() % 8 == 0) membership.lost(4);
        if (random() % 8 == 0) membership.lost(5);
        views[static_cast<std::size_t>(fabric.rank())].push_back(membership.start(step));
      }
    });
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t r = 1; r < 4; ++r)
        ASSERT_EQ(views[r][step]->members, views[0][step]->members) << "seed " << seed << " step " << step;
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

// Runs three ranks of whom rank 2 is killed, and expects the other two to end well.
void two_survive(std::uint64_t kill_at_post, const std::function<void(Flock& flock, Fabric& fabric)>& body) {
  DeathRun run(3, {{2, kill_at_post}}, 0);
  run.run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_loss(OnLoss::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    body(flock, *fabric);
  });
  EXPECT_EQ(run.end(2).signal, SIGKILL);
  for (const Rank rank : {0, 1}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

TEST_F(KillTest, WhoWaitsInAnEarlierAttemptFollowsTheOthers) {
  // Rank 1 has rank 2's part; rank 0 comes when rank 2 is known to be dead and never joins the first attempt.
  two_survive(2, [](Flock& flock, Fabric& fabric) {
    std::vector<Rank> everybody;
    if (flock.rank() == 2) {
      const Pending pending = flock.allgather_nonblocking(std::vector<Rank>{2}, everybody);  // two posts
      flock.send(std::vector<Rank>{2}, 0);                                                    // the third
    }
    if (flock.rank() == 0) {
      while (fabric.alive(2)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Membership(fabric).lost(2);
    }
    if (flock.allgather(std::vector<Rank>{flock.rank()}) != std::vector<Rank>{0, 1})
      throw Error("different contributors");
  });
}

TEST_F(KillTest, WhenTheRootDiesHalfWayAllAreTold) {
  // The root reaches rank 0 and not rank 1: both must raise, and soon, although rank 0 has all it needs.
  two_survive(1, [](Flock& flock, Fabric&) {
    std::vector<double> x = {1.0 * flock.rank()};
    try {
      flock.broadcast(x, 2);
    } catch (const PeerLost& lost) {
      if (lost.peer() != 2 || x[0] != flock.rank()) throw;
      flock.pair_gossip(x, 1 - flock.rank());  // the other one is told before this one leaves
      return;
    }
    throw Error("a broadcast from the dead");
  });
}

TEST_F(KillTest, WhoComesLateToABroadcastOfTheDeadTellsTheOthers) {
  // Rank 1 has what the root sent; rank 0 comes when the root is known to be dead, and raises at once.
  two_survive(2, [](Flock& flock, Fabric& fabric) {
    std::vector<double> x = {1.0 * flock.rank()};
    if (flock.rank() == 0) {
      while (fabric.alive(2)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Membership(fabric).lost(2);
    }
    if (flock.rank() == 2) {
      const Pending pending = flock.broadcast_nonblocking(x, 2);  // two posts
      flock.send(x, 0);                                           // the third
    }
    try {
      flock.broadcast(x, 2);
    } catch (const PeerLost&) {
      flock.pair_gossip(x, 1 - flock.rank());
      return;
    }
    throw Error("a broadcast from the dead");
  });
}

}  // namespace
}  // namespace starling

#include "starling/flock/membership.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/harness.h"
#include "flock/deaths.h"
#include "flock/interleaved_board.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"
#include "starling/topology/stored.h"

// Tests membership after deaths: all ranks do a step in the same view, and every result is an average.

namespace starling::flock {
namespace {

TEST(MembershipTest, AllDoAStepInTheSameViewHoweverTheyInterleave) {
  // Four ranks start steps at their own pace. Ranks 4 and 5 take no part; any rank may report them lost.
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
  EXPECT_EQ(behind.start(1)->epoch, 0U);  // `ahead` has started steps 1..7 with all members
  EXPECT_EQ(behind.newest()->first_step, 8);
  EXPECT_EQ(behind.start(7)->epoch, 0U);
  EXPECT_EQ(behind.start(8)->epoch, 1U);
  EXPECT_EQ(ahead.start(8)->members, (std::vector<Rank>{0, 1}));
}

// Some ranks of n, each with a number below `below`.
std::map<Rank, std::uint64_t> victims(std::mt19937& random, Rank n, std::uint64_t below) {
  const auto ranks = static_cast<unsigned>(n);
  std::map<Rank, std::uint64_t> chosen = {{static_cast<Rank>(random() % ranks), random() % below}};
  if (n > 4) chosen[static_cast<Rank>(random() % ranks)] = random() % below;
  return chosen;
}

TEST(PeerFailureTest, EveryStepAveragesTheLiveRanks) {
  const std::vector<std::string> specs = {"exponential", "one-peer-exponential", "ring", "od-equidyn(seed=3)",
                                          "base(k=1)"};
  for (unsigned seed = 0; seed < 15; ++seed) {
    std::mt19937 random(seed);
    const Rank n = static_cast<Rank>(3 + random() % 6);
    const std::string& spec = specs[seed % specs.size()];
    const auto kills = victims(random, n, 120);
    const std::string what = fmt::format("seed {}: {} on {} ranks", seed, spec, n);
    DeathRun run(n, {.kill_at_post = kills}, 300);
    run.neighbor_averages(spec);
    ASSERT_EQ(run.problem_with_steps(spec), "") << what;
    const auto alive = run.survivors();
    ASSERT_EQ(alive.size() + kills.size(), static_cast<std::size_t>(n)) << what;
    for (const Rank rank : alive)
      ASSERT_NEAR(run.result(rank), run.result(alive[0]), 1e-9) << what << ": no consensus";
  }
}

TEST(PeerFailureTest, CollectivesHaveTheSameContributorsEverywhere) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed + 100);
    const Rank n = static_cast<Rank>(3 + random() % 4);
    DeathRun run(n, {.kill_at_post = victims(random, n, 200)}, 40);
    run.collectives();
    ASSERT_EQ(run.problem_with_results(), "") << fmt::format("seed {}: {} ranks", seed, n);
  }
}

TEST(PeerFailureTest, WithoutReweightingAffectedRanksThrowInTime) {
  DeathRun run(3, {.kill_at_post = {{2, 20}}}, 1000);
  run.neighbor_averages_that_raise("ring");
  for (const Rank rank : {0, 1}) {
    EXPECT_FALSE(run.end(rank).ok);
    EXPECT_NE(run.end(rank).message.find("rank 2 is lost: neighbor_allreduce"), std::string::npos)
        << run.end(rank).message;
  }
}

void await_death(const Fabric& fabric, Rank rank) {
  if (!eventually([&] { return !fabric.alive(rank); }))
    throw Error(fmt::format("rank {} does not die", rank));
}

// Runs three ranks, of which rank 2 is killed, and expects the other two to succeed.
void two_survive(std::uint64_t kill_at_post, const std::function<void(Flock& flock, Fabric& fabric)>& body) {
  DeathRun run(3, {.kill_at_post = {{2, kill_at_post}}}, 0);
  run.run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    body(flock, *fabric);
  });
  EXPECT_EQ(run.end(2).signal, SIGKILL);
  for (const Rank rank : {0, 1}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

TEST(PeerFailureTest, ARankInAnEarlierAttemptFollowsTheOthers) {
  // Rank 1 has rank 2's block; rank 0 starts when rank 2 is known to be dead, and never joins the first
  // attempt.
  two_survive(2, [](Flock& flock, Fabric& fabric) {
    std::vector<Rank> everybody;
    if (flock.rank() == 2) {
      const Pending pending = flock.allgather_nonblocking(std::vector<Rank>{2}, everybody);  // two posts
      flock.send(std::vector<Rank>{2}, 0);                                                   // the third
    }
    if (flock.rank() == 0) {
      await_death(fabric, 2);
      std::vector<Rank> word(1);
      flock.recv(word, 1, "begun");
      Membership(fabric).lost(2);
    }
    const std::vector<Rank> mine = {flock.rank()};
    Pending gathered = flock.allgather_nonblocking(mine, everybody);
    if (flock.rank() == 1) flock.send(std::vector<Rank>{1}, 0, "begun");
    gathered.wait();
    if (everybody != std::vector<Rank>{0, 1}) throw Error("different contributors");
  });
}

TEST(PeerFailureTest, ARootThatDiesDuringABroadcastIsAnErrorOnAllRanks) {
  // The root reaches rank 0 but not rank 1. Both must throw soon, although rank 0 has all it needs.
  two_survive(1, [](Flock& flock, Fabric&) {
    std::vector<double> x = {1.0 * flock.rank()};
    try {
      flock.broadcast(x, 2);
    } catch (const PeerLost& lost) {
      if (lost.peer() != 2 || x[0] != flock.rank()) throw;
      flock.pair_gossip(x, 1 - flock.rank());  // the other rank learns of the failure before this one leaves
      return;
    }
    throw Error("a broadcast from the dead root succeeded");
  });
}

TEST(PeerFailureTest, ALateRankForwardsTheErrorOfADeadRootsBroadcast) {
  // Rank 1 has the root's message; rank 0 starts when the root is known to be dead, and throws at once.
  two_survive(2, [](Flock& flock, Fabric& fabric) {
    std::vector<double> x = {1.0 * flock.rank()};
    if (flock.rank() == 0) {
      await_death(fabric, 2);
      std::vector<double> word(1);
      flock.recv(word, 1, "begun");
      Membership(fabric).lost(2);
    }
    if (flock.rank() == 2) {
      const Pending pending = flock.broadcast_nonblocking(x, 2);  // two posts
      flock.send(x, 0);                                           // the third
    }
    try {
      Pending broadcast = flock.broadcast_nonblocking(x, 2);
      if (flock.rank() == 1) flock.send(std::vector<double>{1}, 0, "begun");
      broadcast.wait();
    } catch (const PeerLost&) {
      flock.pair_gossip(x, 1 - flock.rank());
      return;
    }
    throw Error("a broadcast from the dead root succeeded");
  });
}

TEST(PeerFailureTest, OperationsInFlightRestartDuringAnotherWait) {
  // Rank 0 sends its message after the sum; rank 1 receives it first. The sum must restart without rank 2
  // although rank 1 does not wait for it.
  two_survive(0, [](Flock& flock, Fabric&) {
    std::vector<double> x = {1};
    std::vector<double> letter = {7};
    Pending sum = flock.allreduce_nonblocking(x, x, Reduction::sum, "sum");
    if (flock.rank() == 1) flock.recv(letter, 0);
    sum.wait();
    if (flock.rank() == 0) flock.send(letter, 1);
    if (x[0] != 2) throw Error("not the sum of the survivors");
  });
}

TEST(PeerFailureTest, AScheduleWithGapsIsNotSlow) {
  // A hypercube needs a power of two, so the seven survivors keep the schedule and the dead rank's neighbors
  // meet it again and again.
  DeathRun run(8, {.kill_at_post = {{3, 30}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule("hypercube");
    std::vector<double> x = {1.0 * flock.rank()};
    // Waiting 50 ms for the dead rank each time would exceed the time limit of a test.
    for (int k = 0; k < 6000; ++k) flock.neighbor_allreduce(x);
  });
  for (const Rank rank : run.survivors()) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

// A star defined by the program: without its center, the other ranks would never exchange again.
TEST(PeerFailureTest, DisconnectedSurvivorsSwitchToExponential) {
  DeathRun run(4, {.kill_at_post = {{0, 30}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule(schedule_from_edges(4, {{0, 1}, {0, 2}, {0, 3}}, Weights::metropolis));
    std::vector<double> x = {1};
    for (int k = 0; k < 60; ++k) flock.neighbor_allreduce(x);
    await_death(*fabric, 0);
    x[0] = flock.rank();
    for (int k = 0; k < 60; ++k) flock.neighbor_allreduce(x);
    if (std::abs(x[0] - 2) > 1e-6) throw Error(fmt::format("{} is not the mean", x[0]));
  });
  for (const Rank rank : run.survivors()) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

TEST(PeerFailureTest, ContinuingAfterErrorsLeaksNoMemory) {
  // Rank 2 is dead for the others in every step; messages between ranks 0 and 1 of failed steps are dropped.
  const std::string job = fmt::format("test-keeps-no-memory-{}", getpid());
  const auto ends = [&] {
    std::vector<pid_t> children;
    for (Rank rank = 0; rank < 3; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(50);
        LocalOptions options;
        options.memory_limit = 8 << 20;
        Flock flock(join_local(job, rank, 3, options));
        if (rank == 2) _exit(0);
        flock.set_schedule("ring");
        std::vector<double> x(20'000);  // 160 kB: fifty would exhaust the limit
        int lost = 0;
        try {
          for (int k = 0; k < 200; ++k) try {
              flock.neighbor_allreduce(x);
            } catch (const PeerLost&) {
              ++lost;
            }
        } catch (const Error& error) {
          fmt::print(stderr, "rank {}: {}\n", rank, error.what());
          _exit(1);
        }
        _exit(lost == 200 ? 0 : 2);
      }
      children.push_back(child);
    }
    std::vector<int> statuses;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      statuses.push_back(status);
    }
    return statuses;
  }();
  EXPECT_EQ(ends, (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace starling::flock

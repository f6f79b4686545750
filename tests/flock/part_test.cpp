// Covers Flock::split(), group() and machines (starling/flock/flock.h).
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <thread>

#include "flock/deaths.h"
#include "flock/flock_fixture.h"
#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"

// Tests sub-flocks: split, group, machines.

namespace starling::flock {
namespace {

class SubFlockTest : public FlockTest {};

TEST_P(SubFlockTest, SplitByColorInTheOrderOfTheKey) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    Flock part = flock.split(flock.rank() % 2, -flock.rank());  // the highest rank first
    const Rank members = (n - flock.rank() % 2 + 1) / 2;
    require(part.size() == members, "size");
    require(part.rank() == members - 1 - flock.rank() / 2, "rank");
    // Operations of the sub-flocks, of the whole flock, and of the sub-flocks again, with the same names.
    std::vector<double> x = {static_cast<double>(flock.rank())};
    const auto mine = part.allgather(x);
    for (std::size_t i = 0; i < mine.size(); ++i)
      require(mine[i] == flock.rank() % 2 + 2.0 * static_cast<double>(mine.size() - 1 - i), "order");
    std::vector<double> all = {1};
    flock.allreduce(all);
    require(all[0] == n, "whole");
    std::vector<double> some = {1};
    part.allreduce(some);
    require(some[0] == members, "part");
    std::vector<double> word = {static_cast<double>(part.rank())};
    part.broadcast(word, members - 1);
    require(word[0] == members - 1, "root");
    part.barrier();
  });
}

TEST_P(SubFlockTest, ASubFlockHasItsOwnSchedule) {
  for (const char* spec : {"exponential", "ring", "complete", "base(k=1)", "od-equidyn(seed=2)"})
    run([spec](Flock& flock) {
      Flock part = flock.split(flock.rank() % 2, -flock.rank());
      part.set_schedule(spec);
      flock.set_schedule("ring");
      const Rank m = part.size();
      std::vector<double> expected(static_cast<std::size_t>(m));
      for (Rank r = 0; r < m; ++r) expected[static_cast<std::size_t>(r)] = r * r;
      std::vector<double> x = {static_cast<double>(part.rank() * part.rank())};
      std::vector<double> other = {1};
      for (Step step = 0; step < 6; ++step) {
        part.neighbor_allreduce(x);
        flock.neighbor_allreduce(other);  // the whole flock counts its own steps
        std::vector<double> next(expected.size());
        RoundMatrix(*make_schedule(spec, m), step).multiply(expected.data(), next.data(), 1);
        expected = next;
        require(std::abs(x[0] - expected[static_cast<std::size_t>(part.rank())]) < 1e-13, spec);
      }
    });
}

TEST_P(SubFlockTest, GroupsMayOverlap) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    const Rank right = (flock.rank() + 1) % n;
    const Rank left = (flock.rank() + n - 1) % n;
    if (n == 1) return;
    // Every rank is in two pairs: with its left and with its right neighbor.
    Flock first = n == 2                 ? flock.group({0, 1})
                  : flock.rank() + 1 < n ? flock.group({flock.rank(), right})
                                         : flock.group({right, flock.rank()});
    if (n > 2) {
      Flock second = flock.rank() > 0 ? flock.group({left, flock.rank()}) : flock.group({flock.rank(), left});
      std::vector<double> x = {1.0 * flock.rank()};
      std::vector<double> y = x;
      Pending a = first.allreduce_nonblocking(x, x);
      Pending b = second.allreduce_nonblocking(y, y);
      b.wait();
      a.wait();
      require(x[0] == flock.rank() + right && y[0] == flock.rank() + left, "overlapping groups");
    }
    if (flock.rank() == 0) {
      require(message_of<InvalidArgument>([&] {
                flock.group({1});
              }).find("rank 0 calls it, but is not one of its ranks") != std::string::npos,
              "not a member");
      require(message_of<InvalidArgument>([&] {
                flock.group({0, 0});
              }) == "group: rank 0 is listed twice",
              "twice");
    }
  });
}

TEST_P(SubFlockTest, SubFlocksOfSubFlocksAndTheSameSubFlockTwice) {
  run([](Flock& flock) {
    std::vector<Rank> everybody;
    for (Rank r = 0; r < flock.size(); ++r) everybody.push_back(r);
    Flock one = flock.group(everybody);
    Flock two = flock.group(everybody);
    Flock inner = one.split(one.rank() / 2);
    std::vector<double> x = {1};
    std::vector<double> y = {2};
    std::vector<double> z = {3};
    // Started in different orders.
    Pending a, b;
    if (flock.rank() % 2 == 0) {
      a = one.allreduce_nonblocking(x, x);
      b = two.allreduce_nonblocking(y, y);
    } else {
      b = two.allreduce_nonblocking(y, y);
      a = one.allreduce_nonblocking(x, x);
    }
    inner.allreduce(z);
    a.wait();
    b.wait();
    require(x[0] == flock.size() && y[0] == 2 * flock.size() && z[0] == 3 * inner.size(), "mixed up");
  });
}

TEST_P(SubFlockTest, ThreadsUseSubFlocksAtTheSameTime) {
  run([](Flock& flock) {
    Flock odd_or_even = flock.split(flock.rank() % 2);
    Flock lower_or_upper = flock.split(flock.rank() < flock.size() / 2 ? 0 : 1);
    std::string problem;
    const auto work = [&](Flock part, double start) {
      try {
        std::vector<double> x = {start};
        for (int k = 0; k < 100; ++k) part.average(x);
        require(x[0] == start, "value");
      } catch (const Error& error) {
        problem = error.what();
      }
    };
    std::thread other(work, odd_or_even, 5);
    work(lower_or_upper, 7);
    other.join();
    require(problem.empty(), problem);
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, SubFlockTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

class MachineTest : public FlockTest {};

TEST_P(MachineTest, MachinesAverageWithinAndBetween) {
  const Launcher& launcher = *GetParam().launcher;
  // The harness simulates hosts of two ranks
  const bool pairs = launcher.name.find("hybrid") != std::string::npos;
  const Rank on_one_host = launcher.shares ? 0 : pairs ? 2 : 1;
  run([on_one_host](Flock& flock) {
    setenv("STARLING_RANKS_PER_MACHINE", "2", 1);
    require(flock.local_size() == 2 && flock.machine_size() == flock.size() / 2, "sizes");
    require(flock.local_rank() == flock.rank() % 2 && flock.machine_rank() == flock.rank() / 2, "ranks");
    flock.set_machine_schedule("ring");
    const auto schedule = make_schedule("hierarchical(outer=ring,local=2)", flock.size());
    std::vector<double> expected(static_cast<std::size_t>(flock.size()));
    for (std::size_t r = 0; r < expected.size(); ++r) expected[r] = static_cast<double>(r * r);
    std::vector<double> x = {static_cast<double>(flock.rank() * flock.rank())};
    for (Step step = 0; step < 4; ++step) {
      if (step % 2 == 0) {
        flock.hierarchical_neighbor_allreduce(x);
      } else {
        std::vector<double> out(1);
        flock.hierarchical_neighbor_allreduce_nonblocking(x, out).wait();
        x = out;
      }
      std::vector<double> next(expected.size());
      RoundMatrix(*schedule, step).multiply(expected.data(), next.data(), 1);
      expected = next;
      require(std::abs(x[0] - expected[static_cast<std::size_t>(flock.rank())]) < 1e-13, "value");
    }
    setenv("STARLING_RANKS_PER_MACHINE", "3", 1);
    require(
        message_of<InvalidArgument>([&] { flock.local_rank(); }).find("machines of 3") != std::string::npos,
        "indivisible");
    setenv("STARLING_RANKS_PER_MACHINE", "many", 1);
    require(message_of<InvalidArgument>([&] { flock.local_rank(); }) ==
                "STARLING_RANKS_PER_MACHINE=many is not a whole number from 1 to 1000000",
            "not a number");
    setenv("STARLING_RANKS_PER_MACHINE", "", 1);
    setenv("BLUEFOG_NODES_PER_MACHINE", "4", 1);
    require(flock.local_size() == 4, "BlueFog's variable");
    unsetenv("BLUEFOG_NODES_PER_MACHINE");
    require(flock.local_size() == (on_one_host == 0 ? flock.size() : on_one_host), "ranks of a host");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, MachineTest, testing::ValuesIn(launches({4, 8}, true)), launch_name);

TEST(SubFlockFailureTest, ASubFlockContinuesWithoutItsDeadRank) {
  DeathRun run(6, {.kill_at_post = {{4, 60}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    Flock part = flock.split(flock.rank() % 2, -flock.rank());  // {4, 2, 0} and {5, 3, 1}
    part.set_schedule("ring");
    std::vector<double> x = {1.0 * flock.rank()};
    for (int k = 0; k < 200; ++k) part.neighbor_allreduce(x);
    const auto all = part.allgather(x);
    require(all.size() == (flock.rank() % 2 == 0 ? 2U : 3U), "survivors");
    for (const double value : all) require(std::abs(value - all[0]) < 1e-12, "no consensus");
    const View view = part.view();
    if (flock.rank() % 2 == 0) require(view.members == std::vector<Rank>{1, 2}, "members");
  });
  for (const Rank rank : {0, 1, 2, 3, 5})
    EXPECT_TRUE(run.end(rank).ok) << rank << ": " << run.end(rank).message;
}

// Sub-flocks that are dropped release everything that is limited.
TEST(SubFlockFailureTest, AThousandSubFlocksAndADeathInBetween) {
  DeathRun run(4, {.kill_at_post = {{3, 3000}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(30));
    std::vector<double> x = {1.0 * flock.rank()};
    for (int k = 0; k < 1000; ++k) {
      Flock part = flock.split(flock.rank() % 2);
      part.set_schedule("complete");
      for (int step = 0; step < 3; ++step) part.neighbor_allreduce(x);
    }
    require(flock.rank() != 3, "was not killed");
    Flock part = flock.split(0);
    part.set_schedule("complete");
    part.neighbor_allreduce(x);
    require(part.size() == 3 && part.view().epoch == 0, "a sub-flock of the survivors");
    const auto all = part.allgather(x);
    for (const double value : all) require(value == all[0], "not all averaged in the same view");
  });
  EXPECT_EQ(run.end(3).signal, SIGKILL);
  for (const Rank rank : {0, 1, 2}) EXPECT_TRUE(run.end(rank).ok) << rank << ": " << run.end(rank).message;
}

// More sub-flocks at the same time than a board has slots for steps.
TEST(SubFlockFailureTest, AHundredSubFlocksAtOnceContinueWithoutADeadRank) {
  DeathRun run(4, {.kill_at_post = {{3, 1500}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(30));
    std::vector<Flock> parts;
    for (int k = 0; k < 100; ++k) {
      parts.push_back(flock.split(0));
      parts.back().set_schedule("ring");
    }
    std::vector<double> x = {1.0 * flock.rank()};
    for (int step = 0; step < 40; ++step)
      for (Flock& part : parts) part.neighbor_allreduce(x);
    for (Flock& part : parts) require(part.view().members.size() == 3, "the view of a part");
    const auto all = flock.allgather(x);
    for (const double value : all) require(std::abs(value - all[0]) < 1e-12, "no consensus");
  });
  EXPECT_EQ(run.end(3).signal, SIGKILL);
  for (const Rank rank : {0, 1, 2}) EXPECT_TRUE(run.end(rank).ok) << rank << ": " << run.end(rank).message;
}

}  // namespace
}  // namespace starling::flock

#include "starling/flock/flock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "flock/flock_fixture.h"
#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

// Initial values of any rank, so that every rank can compute all expected results.
double start_value(Rank rank, std::size_t i) {
  return std::sin(1.0 + rank * 10.0 + static_cast<double>(i));
}

TEST_P(FlockTest, NeighborAveragesFollowTheSchedule) {
  for (const char* spec : {"exponential", "ring", "one-peer-exponential", "od-equidyn(seed=3)", "base(k=2)",
                           "complete", "periodic(ring,h=2)", "star"})
    run([spec](Flock& flock) {
      constexpr std::size_t kCount = 37;
      const Rank n = flock.size();
      flock.set_schedule(spec);
      std::vector<double> x(kCount);
      std::vector<double> all(kCount * static_cast<std::size_t>(n));
      for (Rank r = 0; r < n; ++r)
        for (std::size_t i = 0; i < kCount; ++i)
          all[static_cast<std::size_t>(r) * kCount + i] = start_value(r, i);
      const auto mine =
          all.begin() + static_cast<std::ptrdiff_t>(flock.rank()) * static_cast<std::ptrdiff_t>(kCount);
      std::copy(mine, mine + kCount, x.begin());
      const SchedulePtr schedule = make_schedule(spec, n);
      for (Step step = 0; step < 6; ++step) {
        require(flock.step() == step, "step");
        flock.neighbor_allreduce(x);
        std::vector<double> next(all.size());
        RoundMatrix(*schedule, step).multiply(all.data(), next.data(), kCount);
        all = next;
        for (std::size_t i = 0; i < kCount; ++i)
          require(std::abs(x[i] - all[static_cast<std::size_t>(flock.rank()) * kCount + i]) < 1e-14,
                  fmt::format("{} step {}", spec, step));
      }
    });
}

TEST_P(FlockTest, NonblockingOperationsOverlapAndEndInAnyOrder) {
  run([](Flock& flock) {
    constexpr int kOperations = 200;
    std::vector<std::vector<float>> in(kOperations, std::vector<float>(50, static_cast<float>(flock.rank())));
    std::vector<std::vector<float>> out(kOperations, std::vector<float>(50));
    // Every rank starts the named operations in its own order; each takes a step, so the schedule is static.
    std::vector<int> order(kOperations);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(flock.rank()) + 1));
    std::vector<Pending> pending(kOperations);
    using Weights = std::map<Rank, double>;
    Weighted ring{1, Weights{}, Weights{}};
    const Rank n = flock.size();
    if (n > 1) ring = {0.5, {{{(flock.rank() + n - 1) % n, 0.5}}}, {{{(flock.rank() + 1) % n, 1.0}}}};
    for (const int k : order)
      pending[static_cast<std::size_t>(k)] = flock.neighbor_allreduce_nonblocking(
          in[static_cast<std::size_t>(k)], out[static_cast<std::size_t>(k)], ring, fmt::format("op{}", k));
    std::shuffle(order.begin(), order.end(), std::mt19937(99));
    for (const int k : order) pending[static_cast<std::size_t>(k)].wait();
    const float expected = n > 1 ? 0.5F * static_cast<float>(flock.rank()) +
                                       0.5F * static_cast<float>((flock.rank() + n - 1) % n)
                                 : static_cast<float>(flock.rank());
    for (const auto& values : out)
      for (const float value : values) require(value == expected, "value");
  });
}

TEST_P(FlockTest, AllreduceIsTheSameEverywhere) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    for (const std::size_t count : {0U, 1U, 3U, 1000U, 100'003U}) {
      std::vector<float> x(count);
      std::vector<double> sum(count, 0.0);
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<float>(start_value(flock.rank(), i));
        for (Rank r = 0; r < n; ++r) sum[i] += static_cast<float>(start_value(r, i));
      }
      flock.average(x);
      for (std::size_t i = 0; i < count; ++i) require(std::abs(x[i] - sum[i] / n) < 1e-6, "average");
      const auto all = flock.allgather(x);
      for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == x[i % count], "not bitwise the same");
    }
    std::vector<std::int32_t> numbers = {flock.rank(), -flock.rank(), 7};
    flock.allreduce(numbers, Reduction::max);
    require(numbers == std::vector<std::int32_t>({n - 1, 0, 7}), "max");
  });
}

TEST_P(FlockTest, GathersBroadcastsAndBarriers) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(flock.rank()),
                                         flock.rank());  // different lengths
    const auto all = flock.allgather(mine);
    std::size_t at = 0;
    for (Rank r = 0; r < n; ++r)
      for (Rank k = 0; k < r; ++k) require(all[at++] == r, "allgather");
    require(at == all.size(), "allgather's length");
    for (Rank root = 0; root < n; ++root) {
      std::vector<double> x(10, flock.rank());
      flock.broadcast(x, root);
      require(x == std::vector<double>(10, root), "broadcast");
    }
    flock.set_schedule("ring");
    const auto neighbors = flock.neighbor_allgather(std::vector<float>{static_cast<float>(flock.rank())});
    require(neighbors.size() == static_cast<std::size_t>(std::min(n - 1, 2)), "neighbor_allgather");
    for (int i = 0; i < 20; ++i) flock.barrier();
  });
}

TEST_P(FlockTest, ManySmallOperations) {
  run([](Flock& flock) {
    flock.set_schedule("one-peer-exponential");
    std::vector<float> x(16, static_cast<float>(flock.rank()));
    for (int i = 0; i < 2000; ++i) flock.neighbor_allreduce(x);
    const float mean = static_cast<float>(flock.size() - 1) / 2;
    for (const float value : x)
      require(std::abs(value - mean) < 1e-4F, fmt::format("{} is not {}", value, mean));
  });
}

class SeveralRanksTest : public FlockTest {};

TEST_P(SeveralRanksTest, DifferentShapesAreAnErrorOnBothSides) {
  run([](Flock& flock) {
    const Rank peer = flock.rank() ^ 1;
    if (peer >= flock.size() || flock.rank() > 1) return;
    std::vector<float> x(flock.rank() == 0 ? 10 : 11);
    const std::string text = message_of<Mismatch>([&] {
      flock.pair_gossip(x, peer);
      flock.pair_gossip(x, peer);
    });
    require(text.find("10 x float32") != std::string::npos && text.find("11 x float32") != std::string::npos,
            text);
  });
}

TEST_P(SeveralRanksTest, DifferentRootsAreAnErrorOnAll) {
  const auto ends = ends_of([](Flock& flock) {
    std::vector<float> x(4);
    flock.broadcast(x, flock.rank() == 0 ? 0 : 1);
  });
  for (const RankEnd& end : ends) EXPECT_FALSE(end.ok);
}

TEST_P(SeveralRanksTest, BadArgumentsSayWhatIsValid) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    std::vector<std::int32_t> whole(3);
    require(message_of<InvalidArgument>([&] { flock.send(x, 99); }) ==
                fmt::format("send: rank 99 is not one of the {} ranks 0..{}", flock.size(), flock.size() - 1),
            "peer");
    require(message_of<InvalidArgument>([&] { flock.average(whole); }).find("int32") != std::string::npos,
            "integers");
    require(message_of<InvalidArgument>([&] { flock.set_schedule(make_schedule("ring", 99)); }) ==
                fmt::format("ring is for 99 ranks, this flock has {}", flock.size()),
            "size");
    require(message_of<InvalidArgument>([&] { flock.set_schedule("ceca"); }).find("base(k=1)") !=
                std::string::npos,
            "ceca");
    flock.barrier();
  });
}

/// A schedule of the program's own, without a name: every rank receives from the one before it.
class FromTheLeft final : public Schedule {
 public:
  FromTheLeft(Rank n, double self_weight, double weight)
      : Schedule(n), self_weight_(self_weight), weight_(weight) {}

 private:
  void fill(Step, Rank rank, Exchange& out) const override {
    out.self_weight = self_weight_;
    out.add_source((rank + size() - 1) % size(), weight_);
    out.add_destination((rank + 1) % size());
  }
  double self_weight_;
  double weight_;
};

TEST_P(SeveralRanksTest, SchedulesWithoutANameAreCheckedAndCompared) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    const auto refusal = [&](const SchedulePtr& schedule) {
      return message_of<InvalidArgument>([&] { flock.set_schedule(schedule); });
    };
    require(refusal(nullptr).starts_with("a null pointer is no schedule"), refusal(nullptr));
    require(refusal(std::make_shared<FromTheLeft>(n + 1, 0.5, 0.5)) ==
                fmt::format("the program's own schedule is for {} ranks, this flock has {}", n + 1, n),
            "size");
    const std::string heavy = refusal(std::make_shared<FromTheLeft>(n, 0.5, 0.7));
    require(heavy.find("own schedule: in step 0 the weights of rank 0 sum to 1.2") != std::string::npos,
            heavy);

    flock.set_schedule(std::make_shared<FromTheLeft>(n, 0.5, 0.5));
    std::vector<double> x = {static_cast<double>(flock.rank())};
    flock.neighbor_allreduce(x);
    require(x[0] == 0.5 * (flock.rank() + (flock.rank() + n - 1) % n), "average");
    flock.barrier();
    if (n != 2) return;
    const double own = flock.rank() == 0 ? 0.5 : 0.25;
    flock.set_schedule(std::make_shared<FromTheLeft>(n, own, 1 - own));
    const std::string text = message_of<Mismatch>([&] {
      for (int k = 0; k < 2; ++k) flock.neighbor_allreduce(x);
    });
    require(text.find("own schedule ") != std::string::npos, text);
  });
}

TEST_P(SeveralRanksTest, WaitingTooLongNamesThePeer) {
  run([](Flock& flock) {
    if (flock.rank() == 0) {
      flock.set_timeout(200ms);
      std::vector<float> x(1);
      const std::string text = message_of<TimedOut>([&] { flock.recv(x, 1); });
      require(text.find("rank 1") != std::string::npos && text.find("send") != std::string::npos, text);
      flock.set_timeout(40s);
    }
    flock.barrier();
  });
}

class SlowLinkTest : public FlockTest {};

// The wait as a whole exceeds the timeout, but no pause between bytes does.
TEST_P(SlowLinkTest, AWaitContinuesWhileBytesArrive) {
  run([](Flock& flock) {
    flock.barrier();
    flock.set_timeout(1s);
    std::this_thread::sleep_for(600ms * flock.rank());
    const std::vector<Rank> all = flock.allgather(std::vector<Rank>{flock.rank()});
    require(all == std::vector<Rank>{0, 1, 2}, "the gathered values");
    flock.set_timeout(40s);
    flock.barrier();
  });
}

/// Tests that need processes.
class DeathTest : public FlockTest {};

TEST_P(DeathTest, OnlyOperationsThatNeedTheDeadRankThrow) {
  const Rank size = GetParam().size;
  // A dead rank's last message arrives in shared memory; over a network it may not.
  const bool last_message_arrives = GetParam().launcher->shares;
  const auto ends = ends_of([last_message_arrives](Flock& flock) {
    const Rank n = flock.size();
    std::vector<float> x(1000, static_cast<float>(flock.rank()));
    flock.barrier();
    if (flock.rank() == n - 1) {
      flock.send(x, 0);
      if (!last_message_arrives) flock.recv(x, 0);
      kill(getpid(), SIGKILL);
    }
    if (flock.rank() == 0) flock.recv(x, n - 1);  // posted before the death
    if (flock.rank() == 0 && !last_message_arrives) flock.send(x, n - 1);
    try {
      flock.average(x);
    } catch (const PeerLost& lost) {
      require(lost.peer() == n - 1 && lost.operation() == "average", lost.what());
      // The other ranks continue without the dead one.
      const Rank next = (flock.rank() + 1) % (n - 1);
      const Rank before = (flock.rank() + n - 2) % (n - 1);
      for (int k = 0; k < 100; ++k)
        flock.neighbor_allreduce(x, Weighted{0.5, {{{before, 0.5}}}, {{{next, 1.0}}}}, "survivors");
      return;
    }
    throw Error("an average with a dead rank went through");
  });
  for (Rank r = 0; r + 1 < size; ++r)
    EXPECT_TRUE(ends[static_cast<std::size_t>(r)].ok)
        << r << ": " << ends[static_cast<std::size_t>(r)].message;
  EXPECT_EQ(ends.back().signal, SIGKILL);
}

TEST(AloneTest, IsAFlockOfOne) {
  Flock flock = join();
  EXPECT_EQ(flock.size(), 1);
  std::vector<float> x = {1, 2, 3};
  flock.neighbor_allreduce(x);
  flock.average(x);
  flock.broadcast(x, 0);
  flock.barrier();
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FlockTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, SeveralRanksTest, testing::ValuesIn(launches({2, 3, 5}, false)),
                         launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, SlowLinkTest, testing::Values(Launch{&launchers()[0], 3}), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, DeathTest, testing::ValuesIn(launches({3, 5, 8}, true)), launch_name);

}  // namespace
}  // namespace starling::flock

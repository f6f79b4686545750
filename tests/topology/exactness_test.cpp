#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "starling/topology/registry.h"
#include "topology/dense_reference.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

constexpr double kExact = 1e-11;
constexpr double kInexact = 1e-7;

/// The least number of rounds with base^rounds >= n.
int ceil_log(int base, int n) {
  int rounds = 0;
  for (std::int64_t power = 1; power < n; power *= base) ++rounds;
  return rounds;
}

int at_least_one(int rounds) {
  return rounds > 0 ? rounds : 1;
}

bool power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

/// How many times n can be divided by k+1, then by k, and so on down to 2.
int hyper_hypercube_length(int n, int k) {
  int length = 0;
  for (int factor = k + 1; factor >= 2; --factor) {
    for (; n % factor == 0; n /= factor) ++length;
  }
  return at_least_one(length);
}

int simple_base_length(int n, int k) {
  if (reference::is_smooth(n, k + 1)) return hyper_hypercube_length(n, k);
  int power = 0;
  int unit = 1;
  for (; unit <= n / (k + 1); unit *= k + 1) ++power;
  return 2 * power + 1 + (n / unit > 1 ? 1 : 0);
}

int base_length(int n, int k) {
  int rough = n;
  for (int factor = 2; factor <= k + 1; ++factor) {
    while (rough % factor == 0) rough /= factor;
  }
  const int composed = simple_base_length(rough, k) + hyper_hypercube_length(n / rough, k);
  return std::min(simple_base_length(n, k), composed);
}

TEST(ExactnessTest, CecaReachesTheAverageInTheLeastRounds) {
  for (const int k : {1, 2, 3, 4, 7}) {
    for (int n = 1; n <= 200; ++n) {
      SCOPED_TRACE(fmt::format("k={} n={}", k, n));
      const SchedulePtr schedule = make_schedule(fmt::format("ceca(k={})", k), n);
      const int rounds = at_least_one(ceil_log(k + 1, n));
      ASSERT_EQ(schedule->period(), rounds);
      Averaging averaging(*schedule, 1);
      averaging.run(0, rounds - 1);
      ASSERT_TRUE(n == 1 || averaging.error() > kInexact);
      averaging.run(rounds - 1, 1);
      ASSERT_LT(averaging.error(), kExact);
      // Block b still holds values of the first period.
      averaging.restart(2);
      averaging.run(rounds, rounds);
      ASSERT_LT(averaging.error(), kExact);
    }
  }
}

TEST(ExactnessTest, CecaOfLargeSizes) {
  for (const int n : {243, 244, 255, 256, 257, 625, 1000, 4900}) {
    for (const int k : {1, 2, 3, 4, 7}) {
      const SchedulePtr schedule = make_schedule(fmt::format("ceca(k={})", k), n);
      ASSERT_EQ(schedule->period(), ceil_log(k + 1, n));
      EXPECT_LT(error_after(*schedule, 0, schedule->period()), kExact) << "k=" << k << " n=" << n;
    }
  }
}

TEST(ExactnessTest, CecaNeedsNoBlockBAtPowers) {
  for (const int k : {1, 2, 3, 4, 7}) {
    for (int n = 1; n <= 200; ++n) {
      const SchedulePtr schedule = make_schedule(fmt::format("ceca(k={})", k), n);
      int leading = n;  // n = leading * (k+1)^r
      while (leading % (k + 1) == 0) leading /= k + 1;
      bool sends_b = false;
      for (Step step = 0; step < schedule->period(); ++step) {
        const Exchange exchange = schedule->exchange(step, 0);
        for (const Source& source : exchange.sources) sends_b = sends_b || source.lane == Lane::b;
      }
      EXPECT_EQ(sends_b, leading > k) << "k=" << k << " n=" << n;
    }
  }
}

TEST(ExactnessTest, CecaInPairs) {
  for (int n = 2; n <= 200; n += 2) {
    SCOPED_TRACE(n);
    const SchedulePtr schedule = make_schedule("ceca-1p", n);
    const int rounds = ceil_log(2, n);
    ASSERT_EQ(schedule->period(), rounds);
    Averaging averaging(*schedule, 1);
    averaging.run(0, rounds);
    ASSERT_LT(averaging.error(), kExact);
    averaging.restart(2);
    averaging.run(rounds, rounds);
    ASSERT_LT(averaging.error(), kExact);
    for (Step step = 0; step < rounds; ++step) {
      for (Rank rank = 0; rank < n; ++rank) {
        const Exchange exchange = schedule->exchange(step, rank);
        ASSERT_EQ(exchange.sources.size(), 1U);
        ASSERT_EQ(exchange.destinations.size(), 1U);
        ASSERT_EQ(exchange.sources[0].rank, exchange.destinations[0].rank) << "not a pair, rank " << rank;
      }
    }
  }
}

TEST(ExactnessTest, SimpleBaseAndBase) {
  for (int k = 1; k <= 4; ++k) {
    for (int n = 1; n <= 200; ++n) {
      SCOPED_TRACE(fmt::format("k={} n={}", k, n));
      const double bound = 2 * std::log(n) / std::log(k + 1) + 2 + 1e-9;
      const SchedulePtr simple = make_schedule(fmt::format("simple-base(k={})", k), n);
      ASSERT_EQ(simple->period(), simple_base_length(n, k));
      ASSERT_LE(static_cast<double>(simple->period()), bound);
      ASSERT_LT(error_after(*simple, 0, simple->period()), kExact);
      ASSERT_LT(error_after(*simple, simple->period(), simple->period()), kExact);
      const SchedulePtr base = make_schedule(fmt::format("base(k={})", k), n);
      ASSERT_EQ(base->period(), base_length(n, k));
      ASSERT_LE(base->period(), simple->period());
      ASSERT_LT(error_after(*base, 0, base->period()), kExact);
    }
  }
}

TEST(ExactnessTest, OnePeerExponential) {
  for (int n = 1; n <= 200; ++n) {
    SCOPED_TRACE(n);
    const int tau = at_least_one(ceil_log(2, n));
    const SchedulePtr cyclic = make_schedule("one-peer-exponential", n);
    const SchedulePtr permuted = make_schedule("one-peer-exponential(order=permuted)", n, 3);
    ASSERT_EQ(cyclic->period(), tau);
    ASSERT_EQ(permuted->period(), tau);
    for (Step phase = 0; phase < tau; ++phase) {
      const double error = error_after(*cyclic, phase, tau);
      if (power_of_two(n)) {
        ASSERT_LT(error, kExact) << "phase " << phase;
        ASSERT_LT(error_after(*permuted, (phase + 5) * tau, tau), kExact) << "period " << phase + 5;
      } else {
        ASSERT_GT(error, kInexact) << "phase " << phase;
        ASSERT_GT(error_after(*permuted, (phase + 5) * tau, tau), kInexact) << "period " << phase + 5;
      }
    }
  }
}

TEST(ExactnessTest, KPeerExponential) {
  for (const int k : {1, 2, 3, 5}) {
    for (int n = 1; n <= 200; ++n) {
      SCOPED_TRACE(fmt::format("k={} n={}", k, n));
      const int rounds = at_least_one(ceil_log(k + 1, n));
      std::int64_t power = 1;
      for (int round = 0; round < rounds; ++round) power *= k + 1;
      const SchedulePtr schedule = make_schedule(fmt::format("k-peer-exponential(k={})", k), n);
      ASSERT_EQ(schedule->period(), rounds);
      for (Step phase = 0; phase < rounds; ++phase) {
        const double error = error_after(*schedule, phase, rounds);
        if (power % n == 0) {
          ASSERT_LT(error, kExact) << "phase " << phase;
        } else {
          ASSERT_GT(error, kInexact) << "phase " << phase;
        }
      }
    }
  }
}

TEST(ExactnessTest, HypercubesFromAnyPhase) {
  for (int n = 1; n <= 256; n *= 2) {
    const SchedulePtr schedule = make_schedule("one-peer-hypercube", n);
    ASSERT_EQ(schedule->period(), at_least_one(ceil_log(2, n)));
    for (Step phase = 0; phase < schedule->period(); ++phase) {
      EXPECT_LT(error_after(*schedule, phase, schedule->period()), kExact) << "n=" << n << " phase " << phase;
    }
  }
  for (int k = 1; k <= 6; ++k) {
    for (int n = 1; n <= 200; ++n) {
      if (!reference::is_smooth(n, k + 1)) continue;
      const SchedulePtr schedule = make_schedule(fmt::format("hyper-hypercube(k={})", k), n);
      ASSERT_EQ(schedule->period(), hyper_hypercube_length(n, k)) << "k=" << k << " n=" << n;
      for (Step phase = 0; phase < schedule->period(); ++phase) {
        ASSERT_LT(error_after(*schedule, phase, schedule->period()), kExact)
            << "k=" << k << " n=" << n << " phase " << phase;
      }
    }
  }
}

TEST(ExactnessTest, AlternatingExponentialRingOnAnyMachines) {
  for (int machines = 1; machines <= 40; ++machines) {
    for (const int local : {1, 2, 3}) {
      if (machines * local == 1) continue;
      SCOPED_TRACE(fmt::format("machines={} local={}", machines, local));
      const SchedulePtr schedule = make_schedule(fmt::format("aer(local={})", local), machines * local);
      ASSERT_EQ(schedule->period(), 2 * base_length(machines, 1));
      ASSERT_LT(error_after(*schedule, 0, schedule->period()), kExact);
      ASSERT_LT(error_after(*schedule, 3 * schedule->period(), schedule->period()), kExact);
    }
  }
}

TEST(ExactnessTest, FoldUnfold) {
  for (int n = 1; n <= 200; ++n) {
    SCOPED_TRACE(n);
    const SchedulePtr schedule = make_schedule("fold-unfold", n);
    const int rounds = at_least_one(ceil_log(2, n)) + (power_of_two(n) ? 0 : 1);
    ASSERT_EQ(schedule->period(), rounds);
    Averaging averaging(*schedule, 1);
    averaging.run(0, rounds);
    ASSERT_LT(averaging.error(), kExact);
    averaging.restart(2);  // the push-sum weights are kept
    averaging.run(rounds, rounds);
    ASSERT_LT(averaging.error(), kExact);
  }
}

TEST(ExactnessTest, ComposedSchedulesInheritIt) {
  struct Case {
    const char* text;
    int n;
    Step rounds;
  };
  for (const Case& composed :
       {Case{"hierarchical(outer=ceca(k=2),local=4)", 40, 3},
        Case{"hierarchical(outer=base(k=1),local=3)", 3 * 12, 5},
        Case{"hierarchical(outer=one-peer-exponential,local=5)", 80, 4},
        Case{"hierarchical(outer=fold-unfold,local=2)", 14, 4}, Case{"periodic(ring,h=1)", 17, 1},
        Case{"periodic(chain,h=6)", 30, 6}, Case{"periodic(ceca(k=1),h=12)", 100, 7}}) {
    const SchedulePtr schedule = make_schedule(composed.text, composed.n);
    EXPECT_LT(error_after(*schedule, 0, composed.rounds), kExact) << composed.text;
  }
  // CECA restarts after the global mean, at any position in its period.
  const SchedulePtr periodic = make_schedule("periodic(ceca(k=1),h=9)", 100);
  Averaging averaging(*periodic, 1);
  averaging.run(0, 9);
  averaging.restart(2);
  averaging.run(9, 7);
  EXPECT_LT(averaging.error(), kExact);
}

TEST(ExactnessTest, AmongLiveMembersOnly) {
  const SchedulePtr schedule = make_schedule("live(ceca(k=2),members=[0,2,5..9])", 12);
  Averaging averaging(*schedule, 1);
  const std::vector<double> start = averaging.a;
  averaging.run(0, 2);
  const std::vector<std::size_t> members{0, 2, 5, 6, 7, 8, 9};
  double mean = 0;
  for (const std::size_t member : members) mean += start[member] / 7;
  for (const std::size_t member : members) EXPECT_NEAR(averaging.a[member], mean, kExact);
  for (const std::size_t other : {1, 3, 4, 10, 11}) EXPECT_EQ(averaging.a[other], start[other]);
}

TEST(ExactnessTest, OthersAreNotExact) {
  for (const char* text : {"ring",
                           "one-way-ring",
                           "chain",
                           "star",
                           "grid",
                           "torus",
                           "hypercube",
                           "exponential",
                           "binary-tree",
                           "double-binary-trees",
                           "one-peer-ring",
                           "inner-outer-exponential(local=4)",
                           "inner-outer-ring(local=4)",
                           "one-peer-of(ring)",
                           "one-peer-exponential(order=random)",
                           "od-equidyn",
                           "ou-equidyn",
                           "random-matching",
                           "el-oracle(k=2)",
                           "d-equistatic",
                           "u-equistatic"}) {
    const SchedulePtr schedule = make_schedule(text, 16, 5);
    EXPECT_GT(error_after(*schedule, 0, 8), kInexact) << text;
  }
}

}  // namespace
}  // namespace starling::topology

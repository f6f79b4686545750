#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/topology/registry.h"
#include "topology/dense_reference.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using Eigen::MatrixXd;

const std::vector<std::string>& random_texts() {
  static const std::vector<std::string> texts{"d-equistatic",
                                              "u-equistatic",
                                              "d-equistatic(m=3)",
                                              "u-equistatic(m=9)",
                                              "od-equidyn",
                                              "od-equidyn(eta=0.3)",
                                              "od-equidyn(m=5)",
                                              "ou-equidyn",
                                              "ou-equidyn(m=5)",
                                              "random-matching",
                                              "el-oracle(k=1)",
                                              "el-oracle(k=3)",
                                              "one-peer-exponential(order=permuted)",
                                              "one-peer-exponential(order=random)",
                                              "erdos-renyi",
                                              "erdos-renyi(p=0.4)",
                                              "matcha(graph=ring,budget=0.5)",
                                              "live(od-equidyn,members=[0..3,5,7..12])",
                                              "periodic(random-matching,h=50)"};
  return texts;
}

bool is_static(const std::string& text) {
  return text.find("static") != text.npos || text.find("erdos") == 0;
}

int peers(const std::string& text) {
  if (text.find("el-oracle(k=3)") == 0) return 3;
  const bool one = text.find("equidyn") != text.npos || text.find("random-matching") == 0 ||
                   text.find("one-peer") == 0 || text.find("el-oracle") == 0;
  return one ? 1 : 0;
}

TEST(RandomFamilyTest, AllRanksAgreeAndRoundsAreDoublyStochastic) {
  for (const std::string& text : random_texts()) {
    const int first = text.find("live") == 0 ? 13 : 1;
    for (int n = first; n <= 40; ++n) {
      if (text.find("el-oracle(k=3)") == 0 && (n == 2 || n == 3)) {
        EXPECT_THROW(make_schedule(text, n), InvalidArgument);
        continue;
      }
      SCOPED_TRACE(fmt::format("{} n={}", text, n));
      const SchedulePtr schedule = make_schedule(text, n, 2);
      EXPECT_EQ(schedule->mixing(), Mixing::average);
      EXPECT_TRUE(n < 6 || schedule->random() == !is_static(text));  // small ones may have no choice
      for (const Step step : {Step{0}, Step{1}, Step{2}, Step{77}, Step{1} << 40}) {
        ASSERT_EQ(inconsistency(all_exchanges(*schedule, step)), "") << "step " << step;
        const MatrixXd round = dense_round(*schedule, step);
        ASSERT_LT((round.rowwise().sum().array() - 1).abs().maxCoeff(), 1e-12) << "step " << step;
        ASSERT_LT((round.colwise().sum().array() - 1).abs().maxCoeff(), 1e-12) << "step " << step;
        std::string problem;
        ASSERT_EQ(difference(from_entries(*schedule, step, problem).a, round, 1e-14), "");
        ASSERT_EQ(problem, "");
        if (peers(text) == 0 || (step + 1) % 50 == 0) continue;
        ASSERT_LE(largest_degree({round, {}, {}, {}}, false), peers(text));
        ASSERT_LE(largest_degree({round, {}, {}, {}}, true), peers(text));
      }
    }
  }
}

TEST(RandomFamilyTest, AreFunctionsOfSeedAndStep) {
  const int n = 33;
  for (const std::string& text : random_texts()) {
    const SchedulePtr forward = make_schedule(text, n, 5);
    const SchedulePtr again = make_schedule(text, n, 5);
    const SchedulePtr other = make_schedule(text, n, 6);
    const SchedulePtr high_bits = make_schedule(text, n, 5 + (std::uint64_t{1} << 40));
    std::vector<MatrixXd> rounds;
    for (Step step = 0; step < 24; ++step) rounds.push_back(dense_round(*forward, step));
    bool changes = false;
    bool depends_on_seed = false;
    bool depends_on_high_bits = false;
    for (Step step = 23; step >= 0; --step) {
      const MatrixXd& round = rounds[static_cast<std::size_t>(step)];
      ASSERT_EQ(dense_round(*again, step), round) << text << " step " << step;
      changes = changes || round != rounds[0];
      depends_on_seed = depends_on_seed || dense_round(*other, step) != round;
      depends_on_high_bits = depends_on_high_bits || dense_round(*high_bits, step) != round;
    }
    EXPECT_EQ(changes, !is_static(text)) << text;
    EXPECT_TRUE(depends_on_seed) << text;
    EXPECT_TRUE(depends_on_high_bits) << text;
  }
}

TEST(RandomFamilyTest, TakesItsOwnSeed) {
  for (const char* name : {"d-equistatic", "u-equistatic", "od-equidyn", "ou-equidyn", "random-matching",
                           "el-oracle(k=2)", "erdos-renyi", "one-peer-exponential(order=random)"}) {
    std::string text = name;
    if (text.back() == ')') {
      text.back() = ',';
      text += "seed=9)";
    } else {
      text += "(seed=9)";
    }
    const SchedulePtr own = make_schedule(text, 20, 1);
    const SchedulePtr given = make_schedule(name, 20, 9);
    for (Step step = 0; step < 5; ++step)
      EXPECT_EQ(dense_round(*own, step), dense_round(*given, step)) << text;
  }
}

TEST(RandomFamilyTest, ComposesWithOthers) {
  const SchedulePtr outer = make_schedule("od-equidyn(seed=4)", 8);
  const SchedulePtr whole = make_schedule("hierarchical(outer=od-equidyn(seed=4),local=3)", 24);
  const SchedulePtr periodic = make_schedule("periodic(od-equidyn(seed=4),h=5)", 8);
  const MatrixXd inside = MatrixXd::Constant(3, 3, 1.0 / 3);
  for (Step step = 0; step < 20; ++step) {
    const MatrixXd round = dense_round(*outer, step);
    EXPECT_EQ(difference(dense_round(*whole, step), reference::kronecker(round, inside), 1e-12), "");
    const MatrixXd mean = MatrixXd::Constant(8, 8, 1.0 / 8);
    EXPECT_EQ(difference(dense_round(*periodic, step), (step + 1) % 5 == 0 ? mean : round, 1e-12), "");
  }
}

TEST(RandomMatchingTest, IsAPerfectMatching) {
  for (int n = 1; n <= 60; ++n) {
    const SchedulePtr schedule = make_schedule("random-matching", n, 31);
    for (Step step = 0; step < 10; ++step) {
      const std::vector<Rank> partner = partners(*schedule, step);
      int idle = 0;
      for (Rank i = 0; i < n; ++i) {
        const Rank other = partner[static_cast<std::size_t>(i)];
        ASSERT_EQ(partner[static_cast<std::size_t>(other)], i) << "n=" << n;
        if (other == i) ++idle;
        ASSERT_EQ(schedule->exchange(step, i).self_weight, other == i ? 1 : 0.5);
      }
      ASSERT_EQ(idle, n % 2) << "n=" << n;
    }
  }
}

TEST(RandomMatchingTest, EveryMatchingIsEquallyLikely) {
  // (n-1)!! matchings for even n; for odd n, as many for each idle rank.
  for (const auto& [n, matchings] : {std::pair(3, 3), std::pair(4, 3), std::pair(5, 15), std::pair(6, 15),
                                     std::pair(7, 105), std::pair(8, 105)}) {
    const SchedulePtr schedule = make_schedule("random-matching", n, 2);
    std::map<std::vector<Rank>, int> seen;
    for (Step step = 0; step < 60 * matchings; ++step) ++seen[partners(*schedule, step)];
    std::vector<int> counts;
    for (const auto& [matching, count] : seen) counts.push_back(count);
    EXPECT_EQ(static_cast<int>(counts.size()), matchings) << "n=" << n;
    EXPECT_LT(chi_square_sigmas(counts), 4) << "n=" << n;
  }
}

TEST(RandomMatchingTest, PartnersAreUniformAndIndependentOfTheLast) {
  const int n = 100;
  const SchedulePtr schedule = make_schedule("random-matching", n, 77);
  std::vector<int> counts(n);
  int repeats = 0;
  Rank last = -1;
  const int steps = 40000;
  for (Step step = 0; step < steps; ++step) {
    const Rank partner = schedule->exchange(step, 42).sources.at(0).rank;
    ++counts[static_cast<std::size_t>(partner)];
    if (partner == last) ++repeats;
    last = partner;
  }
  counts.erase(counts.begin() + 42);
  EXPECT_LT(chi_square_sigmas(counts), 4);
  const double expected = steps / (n - 1.0);
  EXPECT_LT(std::abs(repeats - expected), 4 * std::sqrt(expected));
}

TEST(RandomMatchingTest, ContractsAsStated) {
  for (const int n : {3, 4, 7, 8, 30, 31}) {
    const SchedulePtr schedule = make_schedule("random-matching", n, 5);
    const double expected = n % 2 == 0 ? (n - 2.0) / (2 * (n - 1.0)) : 0.5;
    EXPECT_LT(contraction_sigmas(*schedule, random_vector(n, 3), 5000, expected), 4) << "n=" << n;
    ASSERT_TRUE(schedule->known_mean_square_rho().has_value());
    EXPECT_NEAR(*schedule->known_mean_square_rho(), std::sqrt(expected), 1e-12) << "n=" << n;
  }
}

TEST(ElOracleTest, FollowsOneCycle) {
  for (const int k : {1, 2, 3, 5}) {
    for (const int n : {2 * k + 3, 2 * k + 4, 30}) {
      const SchedulePtr schedule = make_schedule(fmt::format("el-oracle(k={})", k), n, 14);
      for (Step step = 0; step < 10; ++step) {
        std::vector<std::set<Rank>> heard(static_cast<std::size_t>(n));
        for (Rank i = 0; i < n; ++i) {
          const Exchange exchange = schedule->exchange(step, i);
          ASSERT_NEAR(exchange.self_weight, 1.0 / (k + 1), 1e-15);
          for (const Source& source : exchange.sources) {
            ASSERT_NEAR(source.weight, 1.0 / (k + 1), 1e-15);
            heard[static_cast<std::size_t>(i)].insert(source.rank);
          }
        }
        // The next rank of the cycle is the source that receives from all other sources of this rank.
        std::vector<Rank> cycle{0};
        for (int a = 0; a < n; ++a) {
          const std::set<Rank>& here = heard[static_cast<std::size_t>(cycle.back())];
          ASSERT_EQ(static_cast<int>(here.size()), k);
          for (const Rank candidate : here) {
            std::set<Rank> rest = here;
            rest.erase(candidate);
            const std::set<Rank>& there = heard[static_cast<std::size_t>(candidate)];
            if (!std::includes(there.begin(), there.end(), rest.begin(), rest.end())) continue;
            cycle.push_back(candidate);
            break;
          }
          ASSERT_EQ(static_cast<int>(cycle.size()), a + 2) << "k=" << k << " n=" << n << " step=" << step;
        }
        ASSERT_EQ(cycle.back(), 0);
        ASSERT_EQ(std::set<Rank>(cycle.begin(), cycle.end()).size(), static_cast<std::size_t>(n));
        for (int a = 0; a < n; ++a) {
          std::set<Rank> expected;
          for (int j = 1; j <= k; ++j) expected.insert(cycle[static_cast<std::size_t>((a + j) % n)]);
          ASSERT_EQ(heard[static_cast<std::size_t>(cycle[static_cast<std::size_t>(a)])], expected);
        }
      }
    }
  }
}

TEST(ElOracleTest, EveryCycleIsEquallyLikely) {
  for (const auto& [n, cycles] : {std::pair(3, 2), std::pair(4, 6), std::pair(5, 24), std::pair(6, 120)}) {
    const SchedulePtr schedule = make_schedule("el-oracle(k=1)", n, 8);
    std::map<std::vector<Rank>, int> seen;
    for (Step step = 0; step < 60 * cycles; ++step) ++seen[partners(*schedule, step)];
    std::vector<int> counts;
    for (const auto& [cycle, count] : seen) counts.push_back(count);
    EXPECT_EQ(static_cast<int>(counts.size()), cycles) << "n=" << n;
    EXPECT_LT(chi_square_sigmas(counts), 4) << "n=" << n;
  }
}

TEST(ElOracleTest, ContractsAsStated) {
  for (const int k : {1, 2, 4}) {
    for (const int n : {6, 9, 32}) {
      const SchedulePtr schedule = make_schedule(fmt::format("el-oracle(k={})", k), n, 5);
      const double expected = (n - k - 1.0) / ((k + 1.0) * (n - 1.0));
      EXPECT_LT(contraction_sigmas(*schedule, random_vector(n, 3), 5000, expected), 4)
          << "n=" << n << " k=" << k;
      ASSERT_TRUE(schedule->known_mean_square_rho().has_value());
      EXPECT_NEAR(*schedule->known_mean_square_rho(), std::sqrt(expected), 1e-12);
    }
  }
}

}  // namespace
}  // namespace starling::topology

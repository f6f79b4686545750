#include "starling/fabric/network/failure_detector.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

// Simulated ranks with a simulated clock; a table says which ranks can reach each other.

namespace starling::fabric::network {
namespace {

using namespace std::chrono_literals;
using Clock = FailureDetector::Clock;

class FailureDetectorTest : public testing::Test {
 protected:
  void make(Rank size) {
    for (Rank r = 0; r < size; ++r) ranks_.emplace_back(r, size, Clock::duration(10s), now_);
    dead_.resize(static_cast<std::size_t>(size));
    broken_.resize(static_cast<std::size_t>(size));
  }

  /// Drops everything from one rank to the other.
  void drop(Rank from, Rank to) { dropped_.insert({from, to}); }
  void cut(Rank a, Rank b) {
    drop(a, b);
    drop(b, a);
  }
  /// Kills the process; its kernel closes its connections.
  void kill(Rank which) {
    killed_.insert(which);
    for (Rank r = 0; r < size(); ++r)
      if (r != which && !killed_.contains(r) && !dropped_.contains({which, r}))
        at(r).connection_closed(which, now_);
  }
  void stop(Rank which) { stopped_.insert(which); }
  void resume(Rank which) { stopped_.erase(which); }

  void pass(std::chrono::milliseconds time) {
    for (const auto until = now_ + time; now_ < until; now_ += 100ms) {
      for (Rank from = 0; from < size(); ++from) {
        if (!runs(from)) continue;
        const auto rows = at(from).rows_to_send();
        for (Rank to = 0; to < size(); ++to) {
          if (from == to || !runs(to) || dropped_.contains({from, to}) || dropped_.contains({to, from}))
            continue;
          at(to).heard(from, now_);
          for (const StateRow& row : rows) at(to).update_row(row, now_);
        }
      }
      for (Rank r = 0; r < size(); ++r)
        if (runs(r)) look(r);
    }
  }
  void look(Rank r) {
    const auto decision = at(r).evaluate(now_, [&](Rank peer) {
      const bool reached = !dropped_.contains({r, peer}) && !dropped_.contains({peer, r});
      return reached ? TcpContact::acknowledged : TcpContact::unanswered;
    });
    for (const Rank dead : decision.dead) dead_[static_cast<std::size_t>(r)].insert(dead);
    for (const Rank broken : decision.broken) {
      broken_[static_cast<std::size_t>(r)].insert(broken);
      at(r).connection_abandoned(broken);
    }
  }

  bool runs(Rank r) const { return !killed_.contains(r) && !stopped_.contains(r); }
  Rank size() const { return static_cast<Rank>(ranks_.size()); }
  FailureDetector& at(Rank r) { return ranks_[static_cast<std::size_t>(r)]; }
  const std::set<Rank>& dead(Rank r) const { return dead_[static_cast<std::size_t>(r)]; }
  const std::set<Rank>& broken(Rank r) const { return broken_[static_cast<std::size_t>(r)]; }

  Clock::time_point now_{1h};
  std::vector<FailureDetector> ranks_;
  std::vector<std::set<Rank>> dead_;
  std::vector<std::set<Rank>> broken_;
  std::set<std::pair<Rank, Rank>> dropped_;
  std::set<Rank> killed_;
  std::set<Rank> stopped_;
};

using Ranks = std::set<Rank>;

TEST_F(FailureDetectorTest, AConnectionClosedAtAllRanksMeansDeathAtOnce) {
  make(4);
  pass(2s);
  kill(2);
  pass(300ms);
  for (const Rank r : {0, 1, 3}) EXPECT_EQ(dead(r), Ranks({2}));
}

TEST_F(FailureDetectorTest, TheLastRankSurvivesThreeSimultaneousCrashes) {
  make(4);
  pass(2s);
  for (const Rank r : {0, 1, 2}) kill(r);
  pass(300ms);
  EXPECT_EQ(dead(3), Ranks({0, 1, 2}));
  EXPECT_EQ(at(3).exclusion_reason(), "");
}

TEST_F(FailureDetectorTest, ACrashIsDetectedBeforeTheBoundDespiteAStoppedRank) {
  make(5);
  pass(2s);
  stop(4);
  pass(2s);
  for (const Rank r : {1, 2, 3}) kill(r);
  pass(5s);
  EXPECT_EQ(dead(0), Ranks({1, 2, 3}));
  EXPECT_EQ(at(0).exclusion_reason(), "");
}

TEST_F(FailureDetectorTest, AStoppedProcessIsNeverDeclaredDead) {
  make(3);
  pass(2s);
  stop(1);
  pass(60s);
  EXPECT_TRUE(dead(0).empty() && dead(2).empty() && broken(0).empty());
  resume(1);
  pass(20s);
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion_reason(), "");
  }
}

TEST_F(FailureDetectorTest, ASilentHostIsDeadWithinTheBoundButNotBeforeHalfOfIt) {
  make(4);
  pass(2s);
  for (const Rank r : {0, 1, 2}) cut(3, r);
  pass(5s);
  for (const Rank r : {0, 1, 2}) EXPECT_TRUE(dead(r).empty());
  pass(5s + 200ms);
  for (const Rank r : {0, 1, 2}) {
    EXPECT_EQ(dead(r), Ranks({3}));
    EXPECT_EQ(at(r).exclusion_reason(), "");
  }
  EXPECT_TRUE(dead(3).empty());
  EXPECT_NE(at(3).exclusion_reason().find("rank 3 is cut off"), std::string::npos)
      << at(3).exclusion_reason();
}

TEST_F(FailureDetectorTest, ABrokenLinkIsNotADeath) {
  make(4);
  pass(2s);
  cut(1, 2);
  pass(30s);
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion_reason(), "");
  }
  EXPECT_EQ(broken(1), Ranks({2}));
  EXPECT_EQ(broken(2), Ranks({1}));
  EXPECT_EQ(at(1).next_hop(2), 0);
  kill(2);  // rank 1 has no connection to it
  pass(2s);
  for (const Rank r : {0, 1, 3}) EXPECT_EQ(dead(r), Ranks({2}));
}

TEST_F(FailureDetectorTest, OfTwoHalvesTheOneWithTheLowestRankContinues) {
  make(4);
  pass(2s);
  for (const Rank a : {0, 3})
    for (const Rank b : {1, 2}) cut(a, b);
  pass(15s);
  for (const Rank r : {0, 3}) {
    EXPECT_EQ(dead(r), Ranks({1, 2}));
    EXPECT_EQ(at(r).exclusion_reason(), "");
  }
  for (const Rank r : {1, 2}) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_NE(at(r).exclusion_reason(), "");
  }
}

TEST_F(FailureDetectorTest, OfTwoRanksTheLowerContinues) {
  make(2);
  pass(2s);
  cut(0, 1);
  pass(15s);
  EXPECT_EQ(dead(0), Ranks({1}));
  EXPECT_NE(at(1).exclusion_reason(), "");
}

TEST_F(FailureDetectorTest, RanksInAChainReachEachOther) {
  make(4);
  pass(2s);
  cut(0, 2), cut(0, 3), cut(1, 3);
  pass(20s);
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion_reason(), "");
  }
  EXPECT_EQ(at(0).next_hop(3), 1);
  EXPECT_EQ(at(1).next_hop(3), 2);
  EXPECT_EQ(at(3).next_hop(0), 2);
}

TEST_F(FailureDetectorTest, AMinorityDeclaresNobodyDead) {
  make(5);
  pass(2s);
  for (const Rank a : {0, 1})
    for (const Rank b : {2, 3, 4}) cut(a, b);
  pass(15s);
  for (const Rank r : {0, 1}) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_NE(at(r).exclusion_reason(), "");
  }
  for (const Rank r : {2, 3, 4}) EXPECT_EQ(dead(r), Ranks({0, 1}));
}

TEST_F(FailureDetectorTest, AnExcludedRankLearnsItFromReachablePeers) {
  make(3);
  pass(2s);
  at(0).exclude(2);
  pass(300ms);
  EXPECT_NE(at(2).exclusion_reason().find(
                "rank 2 was excluded: rank 0 reports that the job continues with ranks 0, 1"),
            std::string::npos)
      << at(2).exclusion_reason();
}

TEST_F(FailureDetectorTest, ARankThatWasStoppedDeclaresNobodyDead) {
  make(2);
  pass(2s);
  stop(1);
  cut(0, 1);  // nothing arrives meanwhile
  stop(0);
  now_ += 60s;
  dropped_.clear();
  resume(0);
  resume(1);
  pass(5s);
  EXPECT_TRUE(dead(0).empty() && dead(1).empty());
}

// Whichever links are cut: the ranks that continue agree on the members, and all others know that they are
// excluded.
TEST_F(FailureDetectorTest, NeverDoTwoSidesContinue) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    ranks_.clear(), dead_.clear(), broken_.clear(), dropped_.clear(), killed_.clear();
    make(static_cast<Rank>(2 + random() % 5));
    pass(1s);
    for (unsigned cuts = 1 + random() % 8; cuts > 0; --cuts) {
      const auto a = static_cast<Rank>(random() % ranks_.size());
      const auto b = static_cast<Rank>(random() % ranks_.size());
      if (a == b) continue;
      random() % 3 == 0 ? drop(a, b) : cut(a, b);
      if (random() % 4 == 0) kill(a);
      pass(std::chrono::milliseconds(100 * (random() % 20)));
    }
    pass(40s);
    for (Rank a = 0; a < size(); ++a)
      for (Rank b = 0; b < size(); ++b) {
        if (a == b || !runs(a) || !runs(b) || !at(a).exclusion_reason().empty() ||
            !at(b).exclusion_reason().empty())
          continue;
        EXPECT_FALSE(dead(a).contains(b))
            << "seed " << seed << ": rank " << a << " considers dead rank " << b;
      }
  }
}

}  // namespace
}  // namespace starling::fabric::network

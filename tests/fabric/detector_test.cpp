#include "starling/fabric/network/detector.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

// Ranks of this process with a clock of their own: who hears whom is a table.

namespace starling::network {
namespace {

using namespace std::chrono_literals;
using Clock = Detector::Clock;

class DetectorTest : public testing::Test {
 protected:
  void make(Rank size) {
    for (Rank r = 0; r < size; ++r) ranks_.emplace_back(r, size, Clock::duration(10s), now_);
    dead_.resize(static_cast<std::size_t>(size));
    broken_.resize(static_cast<std::size_t>(size));
  }

  /// Nothing goes from one to the other any more.
  void drop(Rank from, Rank to) { dropped_.insert({from, to}); }
  void cut(Rank a, Rank b) {
    drop(a, b);
    drop(b, a);
  }
  /// The process is dead, its connections are closed by its kernel.
  void kill(Rank which) {
    killed_.insert(which);
    for (Rank r = 0; r < size(); ++r)
      if (r != which && !killed_.contains(r) && !dropped_.contains({which, r})) at(r).closed(which, now_);
  }
  void stop(Rank which) { stopped_.insert(which); }
  void go_on(Rank which) { stopped_.erase(which); }

  void pass(std::chrono::milliseconds time) {
    for (const auto until = now_ + time; now_ < until; now_ += 100ms) {
      for (Rank from = 0; from < size(); ++from) {
        if (!runs(from)) continue;
        const auto rows = at(from).rows();
        for (Rank to = 0; to < size(); ++to) {
          if (from == to || !runs(to) || dropped_.contains({from, to}) || dropped_.contains({to, from}))
            continue;
          at(to).heard(from, now_);
          for (const Row& row : rows) at(to).told(row, now_);
        }
      }
      for (Rank r = 0; r < size(); ++r)
        if (runs(r)) look(r);
    }
  }
  void look(Rank r) {
    const auto verdict = at(r).look(now_, [&](Rank peer) {
      const bool reached = !dropped_.contains({r, peer}) && !dropped_.contains({peer, r});
      return reached ? Contact::acknowledged : Contact::unanswered;
    });
    for (const Rank dead : verdict.dead) dead_[static_cast<std::size_t>(r)].insert(dead);
    for (const Rank broken : verdict.broken) {
      broken_[static_cast<std::size_t>(r)].insert(broken);
      at(r).cut(broken);
    }
  }

  bool runs(Rank r) const { return !killed_.contains(r) && !stopped_.contains(r); }
  Rank size() const { return static_cast<Rank>(ranks_.size()); }
  Detector& at(Rank r) { return ranks_[static_cast<std::size_t>(r)]; }
  const std::set<Rank>& dead(Rank r) const { return dead_[static_cast<std::size_t>(r)]; }
  const std::set<Rank>& broken(Rank r) const { return broken_[static_cast<std::size_t>(r)]; }

  Clock::time_point now_{1h};
  std::vector<Detector> ranks_;
  std::vector<std::set<Rank>> dead_;
  std::vector<std::set<Rank>> broken_;
  std::set<std::pair<Rank, Rank>> dropped_;
  std::set<Rank> killed_;
  std::set<Rank> stopped_;
};

using Ranks = std::set<Rank>;

TEST_F(DetectorTest, AClosedConnectionSeenByAllIsADeathAtOnce) {
  make(4);
  pass(2s);
  kill(2);
  pass(300ms);
  for (const Rank r : {0, 1, 3}) EXPECT_EQ(dead(r), Ranks({2}));
}

TEST_F(DetectorTest, TheLastOneSurvivesThreeDeathsAtOnce) {
  make(4);
  pass(2s);
  for (const Rank r : {0, 1, 2}) kill(r);
  pass(300ms);
  EXPECT_EQ(dead(3), Ranks({0, 1, 2}));
  EXPECT_EQ(at(3).exclusion(), "");
}

TEST_F(DetectorTest, ADeathBesideAStoppedRankIsSeenBeforeTheBound) {
  make(5);
  pass(2s);
  stop(4);
  pass(2s);
  for (const Rank r : {1, 2, 3}) kill(r);
  pass(5s);
  EXPECT_EQ(dead(0), Ranks({1, 2, 3}));
  EXPECT_EQ(at(0).exclusion(), "");
}

TEST_F(DetectorTest, AStoppedProcessIsNeverDead) {
  make(3);
  pass(2s);
  stop(1);
  pass(60s);
  EXPECT_TRUE(dead(0).empty() && dead(2).empty() && broken(0).empty());
  go_on(1);
  pass(20s);
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion(), "");
  }
}

TEST_F(DetectorTest, ASilentHostIsDeadWithinTheBoundAndNotBeforeHalfOfIt) {
  make(4);
  pass(2s);
  for (const Rank r : {0, 1, 2}) cut(3, r);
  pass(5s);
  for (const Rank r : {0, 1, 2}) EXPECT_TRUE(dead(r).empty());
  pass(5s + 200ms);
  for (const Rank r : {0, 1, 2}) {
    EXPECT_EQ(dead(r), Ranks({3}));
    EXPECT_EQ(at(r).exclusion(), "");
  }
  EXPECT_TRUE(dead(3).empty());
  EXPECT_NE(at(3).exclusion().find("rank 3 is cut off"), std::string::npos) << at(3).exclusion();
}

TEST_F(DetectorTest, ABrokenLinkIsNoDeath) {
  make(4);
  pass(2s);
  cut(1, 2);
  pass(30s);
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion(), "");
  }
  EXPECT_EQ(broken(1), Ranks({2}));
  EXPECT_EQ(broken(2), Ranks({1}));
  EXPECT_EQ(at(1).next_to(2), 0);
  kill(2);  // which rank 1 cannot see
  pass(2s);
  for (const Rank r : {0, 1, 3}) EXPECT_EQ(dead(r), Ranks({2}));
}

TEST_F(DetectorTest, OfTwoHalvesTheOneWithTheLowestRankGoesOn) {
  make(4);
  pass(2s);
  for (const Rank a : {0, 3})
    for (const Rank b : {1, 2}) cut(a, b);
  pass(15s);
  for (const Rank r : {0, 3}) {
    EXPECT_EQ(dead(r), Ranks({1, 2}));
    EXPECT_EQ(at(r).exclusion(), "");
  }
  for (const Rank r : {1, 2}) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_NE(at(r).exclusion(), "");
  }
}

TEST_F(DetectorTest, OfTwoRanksTheLowerGoesOn) {
  make(2);
  pass(2s);
  cut(0, 1);
  pass(15s);
  EXPECT_EQ(dead(0), Ranks({1}));
  EXPECT_NE(at(1).exclusion(), "");
}

TEST_F(DetectorTest, RanksInAChainReachEachOther) {
  make(4);
  pass(2s);
  cut(0, 2), cut(0, 3), cut(1, 3);
  pass(20s);
  for (Rank r = 0; r < 4; ++r) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_EQ(at(r).exclusion(), "");
  }
  EXPECT_EQ(at(0).next_to(3), 1);
  EXPECT_EQ(at(1).next_to(3), 2);
  EXPECT_EQ(at(3).next_to(0), 2);
}

TEST_F(DetectorTest, AMinorityNeverDecides) {
  make(5);
  pass(2s);
  for (const Rank a : {0, 1})
    for (const Rank b : {2, 3, 4}) cut(a, b);
  pass(15s);
  for (const Rank r : {0, 1}) {
    EXPECT_TRUE(dead(r).empty());
    EXPECT_NE(at(r).exclusion(), "");
  }
  for (const Rank r : {2, 3, 4}) EXPECT_EQ(dead(r), Ranks({0, 1}));
}

TEST_F(DetectorTest, AnEvictedRankHearsOfItFromWhoStillReachesIt) {
  make(3);
  pass(2s);
  at(0).exclude(2);
  pass(300ms);
  EXPECT_NE(at(2).exclusion().find("rank 2 was evicted: rank 0 says that the job goes on with ranks 0, 1"),
            std::string::npos)
      << at(2).exclusion();
}

TEST_F(DetectorTest, WhoWasStoppedItselfBlamesNobody) {
  make(2);
  pass(2s);
  stop(1);
  cut(0, 1);  // and nothing came meanwhile
  stop(0);
  now_ += 60s;
  dropped_.clear();
  go_on(0);
  go_on(1);
  pass(5s);
  EXPECT_TRUE(dead(0).empty() && dead(1).empty());
}

// Whatever is cut: the ranks that go on agree on who they are, and all others know that they are out.
TEST_F(DetectorTest, NeverTwoSidesGoOn) {
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
        if (a == b || !runs(a) || !runs(b) || !at(a).exclusion().empty() || !at(b).exclusion().empty())
          continue;
        EXPECT_FALSE(dead(a).contains(b)) << "seed " << seed << ": rank " << a << " has buried rank " << b;
      }
  }
}

}  // namespace
}  // namespace starling::network

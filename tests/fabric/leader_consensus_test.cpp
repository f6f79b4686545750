#include "starling/fabric/network/leader_consensus.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

#include "base/eventually.h"
#include "starling/base/error.h"

// Simulated ranks: frames are delivered at once unless they are held back.

namespace starling::fabric::network {
namespace {

class LeaderConsensusTest : public testing::Test {
 protected:
  struct Held {
    Rank from;
    Rank to;
    Frame frame;
  };

  LeaderConsensusTest() {
    for (Rank r = 0; r < 3; ++r)
      ranks_.push_back(std::make_unique<LeaderConsensus>(r, 3, [this, r](Rank to, const Frame& frame) {
        deliver({r, to, frame});
      }));
  }

  void deliver(const Held& held) {
    if (unreachable_ == held.to) {
      held_.push_back(held);
      ++held_back_;
      return;
    }
    LeaderConsensus& to = *ranks_[static_cast<std::size_t>(held.to)];
    if (held.frame.kind == FrameKind::propose) {
      to.proposed(held.from, held.frame);
      ++proposals_;
    } else {
      to.decided(held.frame);
    }
  }

  /// `rank` leaves; returns the agreements that it sends to the others.
  static Slice leave(LeaderConsensus& rank) {
    const auto agreements = rank.close();
    const std::size_t bytes = agreements.size() * sizeof(LeaderConsensus::Agreement);
    Slice slice{Memory(new std::byte[bytes + 1], std::default_delete<std::byte[]>()), 0, bytes};
    if (bytes > 0) std::memcpy(slice.data(), agreements.data(), bytes);
    return slice;
  }

  std::vector<std::unique_ptr<LeaderConsensus>> ranks_;
  Rank unreachable_ = -1;
  std::vector<Held> held_;
  std::atomic<int> held_back_{0};
  std::atomic<int> proposals_{0};  // that were delivered
};

TEST_F(LeaderConsensusTest, TheFirstProposalWins) {
  EXPECT_EQ(ranks_[1]->agree(7, 10), 10);
  EXPECT_EQ(ranks_[0]->agree(7, 20), 10);
  EXPECT_EQ(ranks_[2]->agree(7, 30), 10);
  EXPECT_EQ(ranks_[2]->agree(8, 30), 30);
}

TEST_F(LeaderConsensusTest, ALeavingLeaderHandsItsAgreementsOver) {
  ranks_[2]->agree(7, 10);
  const Slice known = leave(*ranks_[0]);
  ranks_[1]->left(0, known);
  ranks_[2]->left(0, known);
  EXPECT_EQ(ranks_[1]->agree(7, 20), 10);
  EXPECT_EQ(ranks_[2]->agree(8, 30), 30);
  EXPECT_EQ(ranks_[1]->agree(8, 40), 30);
  EXPECT_THROW(ranks_[0]->agree(9, 1), Error);
}

// Rank 2 learns first that rank 0 has left and asks rank 1, which decides nothing before it has learned it,
// too.
TEST_F(LeaderConsensusTest, TheNextLeaderWaitsForTheAgreementsOfTheLast) {
  ranks_[0]->agree(7, 10);
  const Slice known = leave(*ranks_[0]);
  ranks_[2]->left(0, {});  // its agreements are still in flight
  std::int64_t value = 0;
  std::thread asker([&] { value = ranks_[2]->agree(7, 20); });
  EXPECT_TRUE(eventually([&] { return proposals_ == 1; }));
  ranks_[1]->left(0, known);
  asker.join();
  EXPECT_EQ(value, 10);
}

// A proposal to a leader that has left is repeated to the next one.
TEST_F(LeaderConsensusTest, AnUnansweredProposalGoesToTheNextLeader) {
  unreachable_ = 0;
  std::int64_t value = 0;
  std::thread asker([&] { value = ranks_[2]->agree(7, 20); });
  EXPECT_TRUE(eventually([&] { return held_back_ == 1; }));
  const Slice known = leave(*ranks_[0]);
  ranks_[1]->left(0, known);
  ranks_[2]->left(0, known);
  asker.join();
  EXPECT_EQ(value, 20);
  EXPECT_EQ(ranks_[1]->agree(7, 30), 20);
  unreachable_ = -1;
  for (const Held& held : std::exchange(held_, {})) deliver(held);  // too late: rank 0 has left
}

}  // namespace
}  // namespace starling::fabric::network

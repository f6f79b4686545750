#include "starling/fabric/network/turns.h"

#include <gtest/gtest.h>
#include <map>
#include <thread>

namespace starling::network {
namespace {

constexpr std::uint64_t kMegabyte = 1 << 20;

// How many payloads of every peer go.
class TurnsTest : public ::testing::Test {
 protected:
  void add(Rank peer, Step step, std::uint64_t megabytes, bool in_turn = true) {
    MessageHeader message;
    message.step = step;
    message.bytes = megabytes * kMegabyte;
    note(turns_.add(peer, message, in_turn));
  }
  void add_numbered(Rank peer, std::uint64_t number) {
    MessageHeader message;
    message.sequence = number;
    message.bytes = 4 * kMegabyte;
    note(turns_.add(peer, message, true));
  }
  void done(Rank peer) { note(turns_.done(peer)); }
  void lost(Rank peer) { note(turns_.lost(peer)); }
  void note(const Turns::Releases& all) {
    for (const auto& [peer, payloads] : all) go_[peer] += payloads;
  }
  std::size_t go(Rank peer) { return go_[peer]; }

  Turns turns_{4, 8 * kMegabyte};
  std::map<Rank, std::size_t> go_;
};

TEST_F(TurnsTest, EarlierStepsGoFirst) {
  add(1, 5, 4);
  add(2, 6, 4);
  EXPECT_EQ(go(1), 1U);
  EXPECT_EQ(go(2), 0U);
  done(1);
  EXPECT_EQ(go(2), 1U);
}

TEST_F(TurnsTest, NumbersStandForStepsWhereSchedulesDoNotChange) {
  add_numbered(1, 5);
  add_numbered(2, 6);
  add_numbered(3, 5);
  EXPECT_EQ(go(2), 0U);
  EXPECT_EQ(go(3), 1U);
}

TEST_F(TurnsTest, AnEarlierStepDoesNotWaitForALaterOne) {
  add(2, 6, 4);
  add(1, 5, 4);
  EXPECT_EQ(go(2), 1U);
  EXPECT_EQ(go(1), 1U);
}

TEST_F(TurnsTest, OneStepGoesToAllAtOnce) {
  add(1, 5, 4);
  add(2, 5, 4);
  add(3, 5, 4);
  EXPECT_EQ(go(1) + go(2) + go(3), 3U);
}

TEST_F(TurnsTest, TheNextStepBeginsWithTheLastPartOfThisOne) {
  for (int part = 0; part < 3; ++part) add(1, 5, 1);
  add(2, 6, 4);
  done(1);
  EXPECT_EQ(go(2), 0U);
  done(1);
  EXPECT_EQ(go(2), 1U);
}

TEST_F(TurnsTest, OneSidedTrafficNeitherWaitsNorHoldsUp) {
  add(1, 5, 4, false);
  add(2, 6, 4);
  add(3, 7, 4, false);
  EXPECT_EQ(go(1) + go(2) + go(3), 3U);
}

TEST_F(TurnsTest, APeersPayloadsKeepTheirOrder) {
  add(1, 5, 4);
  add(2, 6, 4);
  add(2, 0, 4, false);
  EXPECT_EQ(go(2), 0U);
  done(1);
  EXPECT_EQ(go(2), 2U);
}

TEST_F(TurnsTest, SoMuchIsOnItsWayToAPeerAndOneInAnyCase) {
  for (int part = 0; part < 3; ++part) add(1, 5, 4);
  EXPECT_EQ(go(1), 2U);
  done(1);
  EXPECT_EQ(go(1), 3U);
  add(3, 5, 100);
  EXPECT_EQ(go(3), 1U);
}

TEST_F(TurnsTest, WhoIsLostHoldsNobodyUp) {
  add(1, 5, 4);
  add(2, 6, 4);
  lost(1);
  EXPECT_EQ(go(2), 1U);
}

TEST_F(TurnsTest, WhoDoesNotMoveHoldsNobodyUpForLong) {
  add(1, 5, 4);
  add(2, 6, 4);
  note(turns_.look());
  EXPECT_EQ(go(2), 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  note(turns_.look());
  EXPECT_EQ(go(2), 1U);
}

TEST(TurnsOrderTest, AveragesHaveTurnsAndCallsHaveNone) {
  Frame frame;
  frame.message.kind = static_cast<std::uint16_t>(MessageKind::long_average);
  EXPECT_TRUE(Turns::in_turn(frame));
  frame.kind = FrameKind::call;
  EXPECT_FALSE(Turns::in_turn(frame));
  frame.kind = FrameKind::message;
  frame.message.kind = static_cast<std::uint16_t>(MessageKind::letter);
  EXPECT_FALSE(Turns::in_turn(frame));
}

}  // namespace
}  // namespace starling::network

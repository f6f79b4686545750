#include "starling/fabric/network/turns.h"

#include <gtest/gtest.h>
#include <map>
#include <thread>

namespace starling::network {
namespace {

// How many payloads of every peer go.
class TurnsTest : public ::testing::Test {
 protected:
  void add(Rank peer, Step step, bool in_turn = true) {
    Frame frame = average();
    frame.message.step = step;
    if (!in_turn) frame.kind = FrameKind::call;
    note(turns_.add(peer, frame));
  }
  void add_numbered(Rank peer, std::uint64_t number) {
    Frame frame = average();
    frame.message.sequence = number;
    note(turns_.add(peer, frame));
  }
  static Frame average() {
    Frame frame;
    frame.message.kind = static_cast<std::uint16_t>(MessageKind::average);
    return frame;
  }
  void done(Rank peer) { note(turns_.done(peer)); }
  void lost(Rank peer) { note(turns_.lost(peer)); }
  void note(const Turns::Releases& all) {
    for (const auto& [peer, payloads] : all) go_[peer] += payloads;
  }
  std::size_t go(Rank peer) { return go_[peer]; }

  Turns turns_{4};
  std::map<Rank, std::size_t> go_;
};

TEST_F(TurnsTest, EarlierStepsGoFirst) {
  add(1, 5);
  add(2, 6);
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
  add(2, 6);
  add(1, 5);
  EXPECT_EQ(go(2), 1U);
  EXPECT_EQ(go(1), 1U);
}

TEST_F(TurnsTest, OneStepGoesToAllAtOnce) {
  add(1, 5);
  add(2, 5);
  add(3, 5);
  EXPECT_EQ(go(1) + go(2) + go(3), 3U);
}

TEST_F(TurnsTest, OneSidedTrafficNeitherWaitsNorHoldsUp) {
  add(1, 5, false);
  add(2, 6);
  add(3, 7, false);
  EXPECT_EQ(go(1) + go(2) + go(3), 3U);
}

TEST_F(TurnsTest, APeersPayloadsKeepTheirOrder) {
  add(1, 5);
  add(2, 6);
  add(2, 0, false);
  EXPECT_EQ(go(2), 0U);
  done(1);
  EXPECT_EQ(go(2), 2U);
}

TEST_F(TurnsTest, WhoIsLostHoldsNobodyUp) {
  add(1, 5);
  add(2, 6);
  lost(1);
  EXPECT_EQ(go(2), 1U);
  add(1, 0);  // by who has not heard yet
  add(3, 7);
  EXPECT_EQ(go(1), 1U);
  done(2);
  EXPECT_EQ(go(3), 1U);
}

TEST_F(TurnsTest, WhoDoesNotMoveHoldsNobodyUpForLong) {
  add(1, 5);
  add(2, 6);
  note(turns_.look());
  EXPECT_EQ(go(2), 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  note(turns_.look());
  EXPECT_EQ(go(2), 1U);
}

// On a slow network steps take seconds, and who is half of one late is not stopped.
TEST_F(TurnsTest, PatienceGrowsWithTheSteps) {
  add(1, 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  add(2, 6);  // a step a second, so patience is two
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  note(turns_.look());
  EXPECT_EQ(go(2), 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  note(turns_.look());
  EXPECT_EQ(go(2), 1U);
}

TEST_F(TurnsTest, LettersGoAsTheyCome) {
  add(1, 5);
  Frame letter;
  letter.message.step = 6;
  note(turns_.add(2, letter));
  EXPECT_EQ(go(2), 1U);
}

}  // namespace
}  // namespace starling::network

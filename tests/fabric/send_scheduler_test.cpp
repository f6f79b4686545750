#include "starling/fabric/network/send_scheduler.h"

#include <gtest/gtest.h>
#include <map>

namespace starling::fabric::network {
namespace {

using namespace std::chrono_literals;

// Counts the released payloads of each peer.
class SendSchedulerTest : public ::testing::Test {
 protected:
  void add(Rank peer, Step step, bool ordered = true) {
    Frame frame = average();
    frame.message.step = step;
    if (!ordered) frame.kind = FrameKind::call;
    record(scheduler_.add(peer, frame));
  }
  void add_numbered(Rank peer, std::uint64_t number) {
    Frame frame = average();
    frame.message.sequence = number;
    record(scheduler_.add(peer, frame));
  }
  static Frame average() {
    Frame frame;
    frame.message.kind = static_cast<std::uint16_t>(MessageKind::average);
    return frame;
  }
  void done(Rank peer) { record(scheduler_.done(peer)); }
  void lost(Rank peer) { record(scheduler_.lost(peer)); }
  void record(const SendScheduler::Releases& all) {
    for (const auto& [peer, payloads] : all) released_[peer] += payloads;
  }
  std::size_t released(Rank peer) { return released_[peer]; }

  void advance(SendScheduler::Clock::duration time) { now_ += time; }

  SendScheduler::Clock::time_point now_{1h};
  SendScheduler scheduler_{4, [this] { return now_; }};
  std::map<Rank, std::size_t> released_;
};

TEST_F(SendSchedulerTest, ReleasesEarlierStepsFirst) {
  add(1, 5);
  add(2, 6);
  EXPECT_EQ(released(1), 1U);
  EXPECT_EQ(released(2), 0U);
  done(1);
  EXPECT_EQ(released(2), 1U);
}

TEST_F(SendSchedulerTest, OrdersBySequenceNumberIfThereIsNoStep) {
  add_numbered(1, 5);
  add_numbered(2, 6);
  add_numbered(3, 5);
  EXPECT_EQ(released(2), 0U);
  EXPECT_EQ(released(3), 1U);
}

TEST_F(SendSchedulerTest, AnEarlierStepDoesNotWaitForALaterOne) {
  add(2, 6);
  add(1, 5);
  EXPECT_EQ(released(2), 1U);
  EXPECT_EQ(released(1), 1U);
}

TEST_F(SendSchedulerTest, ReleasesOneStepToAllPeersAtOnce) {
  add(1, 5);
  add(2, 5);
  add(3, 5);
  EXPECT_EQ(released(1) + released(2) + released(3), 3U);
}

TEST_F(SendSchedulerTest, OneSidedTrafficNeitherWaitsNorDelaysOthers) {
  add(1, 5, false);
  add(2, 6);
  add(3, 7, false);
  EXPECT_EQ(released(1) + released(2) + released(3), 3U);
}

TEST_F(SendSchedulerTest, KeepsTheOrderOfAPeersPayloads) {
  add(1, 5);
  add(2, 6);
  add(2, 0, false);
  EXPECT_EQ(released(2), 0U);
  done(1);
  EXPECT_EQ(released(2), 2U);
}

TEST_F(SendSchedulerTest, ALostPeerDelaysNoOther) {
  add(1, 5);
  add(2, 6);
  lost(1);
  EXPECT_EQ(released(2), 1U);
  add(1, 0);  // from a thread that does not know of the failure yet
  add(3, 7);
  EXPECT_EQ(released(1), 1U);
  done(2);
  EXPECT_EQ(released(3), 1U);
}

TEST_F(SendSchedulerTest, APeerWithoutProgressDelaysOthersForABoundedTime) {
  add(1, 5);
  add(2, 6);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 0U);
  advance(999ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 0U);
  advance(1ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 1U);
}

TEST_F(SendSchedulerTest, ProgressOfAPeerRestartsItsTime) {
  add(1, 5);
  add(1, 5);
  add(2, 6);
  advance(900ms);
  done(1);
  advance(900ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 0U);
  advance(100ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 1U);
}

// On a slow network a step takes seconds, and a peer that is half a step late has not stalled.
TEST_F(SendSchedulerTest, PatienceGrowsWithTheDurationOfAStep) {
  add(1, 5);
  advance(10s);
  add(2, 6);  // one step per ten seconds: the patience is twenty seconds
  advance(9999ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 0U);
  advance(1ms);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 1U);
}

TEST_F(SendSchedulerTest, PatienceIsAtMostAMinute) {
  add(1, 5);
  advance(55s);
  add(2, 6);
  EXPECT_EQ(released(2), 0U);
  advance(5s);
  record(scheduler_.recheck());
  EXPECT_EQ(released(2), 1U);
}

TEST_F(SendSchedulerTest, PointToPointMessagesAreNotOrdered) {
  add(1, 5);
  Frame frame;
  frame.message.step = 6;
  record(scheduler_.add(2, frame));
  EXPECT_EQ(released(2), 1U);
}

}  // namespace
}  // namespace starling::fabric::network

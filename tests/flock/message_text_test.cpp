// Covers the texts of errors: errors, mailbox and operation of starling/flock.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"

// What errors say about an operation: the user's call, its step if it counts steps, and what to do.

namespace starling::flock {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename E>
std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MessageTextTest, AScheduledOperationNamesItsStepOnBothSides) {
  auto fabrics = local_threads(2);
  std::thread other([&] {
    Flock flock(fabrics[1]);
    flock.set_schedule("one-peer-exponential");
    std::vector<double> x(1);
    for (int step = 0; step < 3; ++step) flock.neighbor_allreduce(x, "layer3");
  });
  Flock flock(fabrics[0]);
  flock.set_schedule("one-peer-exponential");
  flock.set_timeout(100ms);
  std::vector<double> x(1);
  for (int step = 0; step < 3; ++step) flock.neighbor_allreduce(x, "layer3");
  other.join();
  EXPECT_THAT(text_of<TimedOut>([&] { flock.neighbor_allreduce(x, "layer3"); }),
              AllOf(HasSubstr("layer3, step 3 waited"), HasSubstr("Rank 1 last posted layer3"),
                    HasSubstr("and is not waiting."), Not(HasSubstr("collective"))));
  fabrics[1].reset();
  EXPECT_EQ(text_of<PeerLost>([&] { flock.neighbor_allreduce(x, "layer3"); }),
            "rank 1 is lost: layer3, step 4 needed it");
}

TEST(MessageTextTest, NamesTheRanksThatDidNotCallACollective) {
  const auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_timeout(100ms);
  std::vector<double> x(1);
  EXPECT_THAT(text_of<TimedOut>([&] { flock.allreduce(x, Reduction::sum, "loss"); }),
              AllOf(HasSubstr("loss waited"), HasSubstr("Rank 1 has posted nothing yet"),
                    HasSubstr("loss is collective: call it on every rank."), Not(HasSubstr("step"))));
  EXPECT_THAT(text_of<TimedOut>([&] { flock.recv(x, 1); }), Not(HasSubstr("collective")));
}

TEST(MessageTextTest, NamesTheWindowThatOthersDoNotCreate) {
  const auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_timeout(100ms);
  std::vector<double> x(1);
  EXPECT_THAT(text_of<TimedOut>([&] { flock.create_window(x, "w"); }),
              HasSubstr("create_window('w') is collective: call it on every rank."));
}

TEST(MessageTextTest, InternalNamesReadAsTheUsersCall) {
  const auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_timeout(100ms);
  const auto call = std::make_shared<UserCall>();
  call->call = "Trainer::step()";
  call->part = "bucket 0";
  call->step = 41;
  flock.set_user_call("trainer/0", call);
  std::vector<float> x(96);
  EXPECT_THAT(text_of<TimedOut>([&] { flock.allreduce(x, Reduction::average, "trainer/0/reduce"); }),
              AllOf(HasSubstr("Trainer::step(), step 41, bucket 0 waited"),
                    HasSubstr("Trainer::step() is collective"), Not(HasSubstr("trainer/0"))));
  EXPECT_EQ(flock.described("trainer/0/window"), "Trainer::step(), step 41, bucket 0");
  EXPECT_EQ(flock.described("trainer/1/window"), "trainer/1/window");
  // The sizes of internal blocks are padded.
  Flock theirs(fabrics[1]);
  const Pending sent = theirs.broadcast_nonblocking(x, 1, "trainer/0/broadcast");
  std::vector<float> more(128);
  EXPECT_EQ(
      text_of<Mismatch>([&] { flock.broadcast(more, 1, "trainer/0/broadcast"); }),
      "Trainer::step(), step 41, bucket 0: ranks 1 and 0 have models of different sizes; give all ranks "
      "the same model");
}

}  // namespace
}  // namespace starling::flock

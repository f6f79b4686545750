// Covers Flock::set_send_limit() (starling/flock/flock.h).
#include <gtest/gtest.h>
#include <thread>

#include "flock/flock_fixture.h"
#include "starling/fabric/local/local.h"

// Tests the bound on unread messages of a receiver.

namespace starling::flock {
namespace {

constexpr std::uint64_t kLimit = 1 << 20;
const std::vector<double> kMessage(10'000);  // 80 kB

class SendLimitTest : public FlockTest {};

TEST_P(SendLimitTest, AReceiverThatDoesNotReadIsNamedAfterTheTimeout) {
  run([](Flock& flock) {
    std::vector<double> x = kMessage;
    std::vector<std::int64_t> sent{0};
    if (flock.rank() == 0) {
      flock.set_send_limit(kLimit);
      flock.set_timeout(300ms);
      const std::string text = message_of<TimedOut>([&] {
        for (; sent[0] < 1000; ++sent[0]) flock.send(x, 1, "gradients");
      });
      require(text.find("for rank 1 to read what rank 0 has sent it in gradients") != std::string::npos,
              text);
      require(text.find("the limit of 1048576 unread bytes is reached") != std::string::npos, text);
      require(sent[0] >= 13 && sent[0] <= 16, std::to_string(sent[0]) + " messages");
      flock.set_timeout(40s);
    }
    // Nothing is lost: the receiver reads all messages, and then there is room again.
    flock.broadcast(sent, 0, "sent");
    if (flock.rank() == 1)
      for (std::int64_t k = 0; k < sent[0] + 20; ++k) flock.recv(x, 0, "gradients");
    if (flock.rank() == 0)
      for (int k = 0; k < 20; ++k) flock.send(x, 1, "gradients");
    flock.barrier();
  });
}

TEST_P(SendLimitTest, ASlowReceiverGetsEverythingInOrder) {
  run([](Flock& flock) {
    flock.set_send_limit(kLimit);
    std::vector<double> x = kMessage;
    if (flock.rank() == 0)
      for (int k = 0; k < 200; ++k) {
        x[0] = k;
        flock.send(x, 1);
      }
    if (flock.rank() == 1)
      for (int k = 0; k < 200; ++k) {
        if (k % 50 == 0) std::this_thread::sleep_for(20ms);
        flock.recv(x, 0);
        require(x[0] == k, "messages come in order");
      }
    flock.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, SendLimitTest, testing::ValuesIn(launches({2, 3}, false)), launch_name);

TEST(SendLimit, OneMessageMayExceedTheLimitAndDeadReceiversDoNotBlock) {
  auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_send_limit(1000);
  flock.send(kMessage, 1);
  fabrics[1].reset();
  for (int k = 0; k < 10; ++k) flock.send(kMessage, 1);
  EXPECT_THROW(flock.set_send_limit(0), InvalidArgument);
}

}  // namespace
}  // namespace starling::flock

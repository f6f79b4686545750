#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"

// What a receiver has not read is bounded.

namespace starling {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::uint64_t kLimit = 1 << 20;

TEST(SendLimitTest, AReceiverThatNeverReadsIsNamedAfterTheTimeout) {
  const auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_send_limit(kLimit);
  flock.set_timeout(50ms);
  const std::vector<double> x(10'000);  // 80 kB
  int sent = 0;
  try {
    for (; sent < 1000; ++sent) flock.send(x, 1, "gradients");
    FAIL() << "80 MB are waiting to be read";
  } catch (const TimedOut& error) {
    EXPECT_THAT(error.what(), HasSubstr("for rank 1 to read what rank 0 has sent it in gradients"));
    EXPECT_THAT(error.what(), HasSubstr("STARLING_SEND_LIMIT=1048576"));
  }
  EXPECT_GE(sent, 13);
  EXPECT_LE(sent, 16);
}

TEST(SendLimitTest, ASlowReceiverSlowsItsSenderDown) {
  const auto fabrics = local_threads(2);
  std::atomic<int> sent{0};
  int most = 0;
  std::thread sender([&] {
    Flock flock(fabrics[0]);
    flock.set_send_limit(kLimit);
    for (int k = 0; k < 200; ++k, ++sent) flock.send(std::vector<double>(10'000, k), 1);
  });
  Flock flock(fabrics[1]);
  std::vector<double> x(10'000);
  for (int k = 0; k < 200; ++k) {
    most = std::max(most, sent - k);
    flock.recv(x, 0);
    ASSERT_EQ(x[0], k);
  }
  sender.join();
  EXPECT_LE(most, 17);
}

TEST(SendLimitTest, OneMessageLongerThanTheLimitGoesAndTheDeadHoldNobodyUp) {
  auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.set_send_limit(1000);
  const std::vector<double> x(10'000);
  flock.send(x, 1);
  fabrics[1].reset();
  for (int k = 0; k < 10; ++k) flock.send(x, 1);
  EXPECT_THROW(flock.set_send_limit(0), InvalidArgument);
}

}  // namespace
}  // namespace starling

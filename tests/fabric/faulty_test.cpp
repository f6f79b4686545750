#include "starling/fabric/faulty/faulty.h"

#include <cmath>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/local.h"

namespace starling::fabric {
namespace {

// Returns which of 1000 messages from rank 0 to rank 1 arrive.
std::vector<std::uint64_t> arrivals(const Faults& faults) {
  auto fabrics = local_threads(2);
  const auto receiver = make_faulty(fabrics[1], faults);
  for (std::uint64_t k = 0; k < 1000; ++k) {
    MessageHeader header;
    header.sequence = k;
    fabrics[0]->post(fabrics[0]->reserve(8), header, 1);
  }
  std::vector<std::uint64_t> seen;
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < deadline && (seen.empty() || seen.back() != 999)) {
    while (auto arrival = receiver->poll(0)) seen.push_back(arrival->header().sequence);
    receiver->sleep(receiver->wake_count(), {}, deadline);
  }
  return seen;
}

TEST(FaultyTest, DropsWithTheGivenProbabilityReproducibly) {
  Faults faults;
  faults.seed = 7;
  faults.drop = 0.25;
  const auto first = arrivals(faults);
  EXPECT_NEAR(static_cast<double>(first.size()), 750, 4 * std::sqrt(1000 * 0.25 * 0.75));
  EXPECT_EQ(first, arrivals(faults));
  faults.seed = 8;
  EXPECT_NE(first, arrivals(faults));
}

// A loss is visible: the header arrives without payload. Point-to-point messages and collectives are not
// affected.
TEST(FaultyTest, LosesPayloadsOfNeighborMessagesAndReportsIt) {
  auto fabrics = local_threads(2);
  const auto receiver = make_faulty(fabrics[1], {.seed = 5, .lose = 0.3});
  constexpr MessageKind kKinds[] = {MessageKind::average, MessageKind::relay, MessageKind::point_to_point,
                                    MessageKind::reduction};
  for (std::uint64_t k = 0; k < 4000; ++k) {
    MessageHeader header;
    header.sequence = k;
    header.kind = static_cast<std::uint16_t>(kKinds[k % 4]);
    fabrics[0]->post(fabrics[0]->reserve(8), header, 1);
  }
  std::uint64_t seen = 0;
  std::size_t lost[4] = {};
  while (auto arrival = receiver->poll(0)) {
    EXPECT_EQ(arrival->header().sequence, seen);
    EXPECT_EQ(arrival->bytes().size(), arrival->lost() ? 0U : 8U);
    lost[seen++ % 4] += arrival->lost() ? 1 : 0;
  }
  EXPECT_EQ(seen, 4000U);
  for (const std::size_t kind : {0U, 1U})
    EXPECT_NEAR(static_cast<double>(lost[kind]), 300, 4 * std::sqrt(1000 * 0.3 * 0.7));
  EXPECT_EQ(lost[2] + lost[3], 0U);
}

TEST(FaultyTest, DelaysKeepTheOrderOfAPair) {
  Faults faults;
  faults.delay = 0.5;
  faults.longest_delay = std::chrono::microseconds(300);
  const auto seen = arrivals(faults);
  ASSERT_EQ(seen.size(), 1000U);
  for (std::uint64_t k = 0; k < seen.size(); ++k) ASSERT_EQ(seen[k], k);
}

TEST(FaultyTest, KillsAtTheGivenPost) {
  const pid_t child = fork();
  if (child == 0) {
    Faults faults;
    faults.kills = {{0, 3}};
    const auto fabric = make_faulty(local_threads(1).front(), faults);
    for (int k = 0; k < 3; ++k) fabric->post(fabric->reserve(1), {}, 0);
    fabric->post(fabric->reserve(1), {}, 0);
    _exit(0);  // not reached
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(FaultyTest, RejectsInvalidProbabilities) {
  Faults faults;
  faults.drop = 1.5;
  EXPECT_THROW(make_faulty(local_threads(1).front(), faults), InvalidArgument);
}

}  // namespace
}  // namespace starling::fabric

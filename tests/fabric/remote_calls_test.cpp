#include "starling/fabric/remote_calls.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/harness.h"
#include "starling/base/error.h"
#include "starling/fabric/faulty/faulty.h"

// Remote calls, on fabrics whose ranks do not share memory.

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

Deadline within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

Outgoing packed(Fabric& fabric, const std::vector<std::uint64_t>& words) {
  Outgoing message = fabric.reserve(words.size() * sizeof(std::uint64_t));
  std::memcpy(message.bytes().data(), words.data(), message.bytes().size());
  return message;
}

std::uint64_t first_word(std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof(word));
  return word;
}

// Sends a word to all ranks and returns the words of all ranks.
std::vector<std::uint64_t> exchange(Fabric& fabric, std::uint64_t word) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(fabric.size()), word);
  for (Rank r = 0; r < fabric.size(); ++r)
    if (r != fabric.rank()) fabric.post(packed(fabric, {word}), {}, r);
  for (Rank r = 0; r < fabric.size(); ++r)
    while (r != fabric.rank()) {
      const std::uint32_t wake_count = fabric.wake_count();
      if (const auto arrival = fabric.poll(r)) {
        all[static_cast<std::size_t>(r)] = first_word(arrival->bytes());
        break;
      }
      fabric.sleep(wake_count, {&r, 1}, within(50ms));
    }
  return all;
}

class RemoteCallsTest : public testing::TestWithParam<Launch> {
 protected:
  void SetUp() override {
    if (GetParam().launcher->shares) GTEST_SKIP() << "ranks that share memory have no remote calls";
  }
  void run(const RankBody& body) const {
    const auto ends = GetParam().launcher->run(GetParam().size, body);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

TEST_P(RemoteCallsTest, HandlersRunInOrderAndReply) {
  run([](const std::shared_ptr<Fabric>& plain) {
    const auto fabric = make_faulty(plain, {});  // which forwards remote calls
    RemoteCalls& calls = *fabric->remote_calls();
    std::vector<std::atomic<std::uint64_t>> heard(static_cast<std::size_t>(fabric->size()));
    // Notification k is the k-th from its sender and has any length. A call returns their number.
    const std::uint64_t mine = calls.add_handler([&](Rank from, std::span<const std::byte> arguments) {
      auto& count = heard[static_cast<std::size_t>(from)];
      if (first_word(arguments) == count) ++count;
      return packed(*fabric, {count, static_cast<std::uint64_t>(from)});
    });
    const auto numbers = exchange(*fabric, mine);
    for (std::uint64_t k = 0; k < 50; ++k)
      for (Rank to = 0; to < fabric->size(); ++to) {
        if (to == fabric->rank()) continue;
        std::vector<std::uint64_t> words(k % 7 == 0 ? 50'000 : 1, k);
        calls.notify(packed(*fabric, words), numbers[static_cast<std::size_t>(to)], to);
      }
    for (Rank to = 0; to < fabric->size(); ++to) {
      if (to == fabric->rank()) continue;
      const auto answer =
          calls.call(packed(*fabric, {~0ULL}), numbers[static_cast<std::size_t>(to)], to, within(30s));
      demand(answer && answer->bytes().size() == 16 && first_word(answer->bytes()) == 50, "answer");
    }
    exchange(*fabric, 0);
    calls.remove_handler(mine);
    exchange(*fabric, 0);
    for (Rank to = 0; to < fabric->size(); ++to)
      if (to != fabric->rank())
        demand(!calls.call(packed(*fabric, {0}), numbers[static_cast<std::size_t>(to)], to, Deadline::max()),
               "an answer of a removed handler");
    exchange(*fabric, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RemoteCallsTest, testing::ValuesIn(launches({1, 2, 3, 5}, false)),
                         launch_name);

class RemoteCallsFailureTest : public RemoteCallsTest {};

TEST_P(RemoteCallsFailureTest, CallsToStoppedAndDeadRanksEnd) {
  const auto ends = GetParam().launcher->run(2, [](const std::shared_ptr<Fabric>& fabric) {
    RemoteCalls& calls = *fabric->remote_calls();
    const std::uint64_t mine =
        calls.add_handler([&](Rank, std::span<const std::byte>) { return packed(*fabric, {7}); });
    const auto numbers = exchange(*fabric, mine);
    const auto pids = exchange(*fabric, static_cast<std::uint64_t>(getpid()));
    if (fabric->rank() == 1) {
      demand(eventually([&] { return !fabric->alive(0); }), "rank 0 does not leave");
      return;
    }
    const auto victim = static_cast<pid_t>(pids[1]);
    const auto call = [&](std::chrono::milliseconds patience) {
      return calls.call(packed(*fabric, {0}), numbers[1], 1, within(patience)).has_value();
    };
    demand(call(30s), "no answer of a running rank");
    {
      const Stopped stopped(victim);
      demand(!call(100ms), "an answer of a stopped rank");
      // Sends a bounded amount, so that messages do not pile up.
      int sent = 0;
      for (; sent < 1000 && calls.wait_for_room(1, within(20ms)); ++sent)
        calls.notify(packed(*fabric, std::vector<std::uint64_t>(1 << 17)), numbers[1], 1);
      demand(sent > 4 && sent < 100, "room for " + std::to_string(sent) + " MiB");
    }
    demand(calls.wait_for_room(1, within(30s)) && call(30s), "no answer of a resumed rank");
    const Stopped stopped(victim);
    if (fork() == 0) {
      usleep(100'000);
      kill(victim, SIGKILL);
      _exit(0);
    }
    // If this waited for the dead rank, the test would reach its time limit.
    demand(!call(std::chrono::hours(1)) && !fabric->alive(1), "an answer of a dead rank");
  });
  EXPECT_TRUE(ends[0].ok) << ends[0].message;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RemoteCallsFailureTest, testing::ValuesIn(launches({2}, true)),
                         launch_name);

}  // namespace
}  // namespace starling::fabric

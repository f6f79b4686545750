#include "starling/flock/deadlock.h"

#include <signal.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/reference.h"
#include "starling/fabric/faulty/faulty.h"

namespace starling::flock {
namespace {

using Clock = std::chrono::steady_clock;

/// Excludes launchers that delay messages: each case already takes as long as a rank waits before it suspects
/// a deadlock.
std::vector<Launch> on_time(const std::vector<Rank>& sizes, bool only_processes) {
  auto all = launches(sizes, only_processes);
  std::erase_if(all, [](const Launch& launch) { return launch.launcher->name.starts_with("late"); });
  return all;
}

/// Tests that use the fabric's board, which shows what other ranks wait for.
class BoardTest : public FlockTest {
 protected:
  using BoardBody = std::function<void(Flock& flock, Fabric& fabric)>;
  void run_with_board(const BoardBody& body) const {
    const auto ends =
        GetParam().launcher->run(GetParam().size, [body](const std::shared_ptr<Fabric>& fabric) {
          Flock flock(fabric);
          flock.set_timeout(40s);
          body(flock, *fabric);
        });
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
  /// Waits until `rank` has waited so long that it publishes its wait and looks for a deadlock.
  static void await_suspicion(Fabric& fabric, Rank rank) {
    require(eventually([&] { return fabric.board().waiting(rank).peer >= 0; }), "the rank does not wait");
  }
  /// Waits until the wait of `rank`, which was part of a deadlock in the operation of this name, has ended.
  static void await_end_of_wait(Fabric& fabric, Rank rank, std::string_view name = "") {
    require(eventually([&] {
              const WaitStatus waiting = fabric.board().waiting(rank);
              const std::string_view operation = waiting.text.data();
              return waiting.peer < 0 || operation.find(name) == operation.npos || !fabric.alive(rank);
            }),
            "the rank still waits");
  }
};

class DeadlockTest : public BoardTest {};

/// The operation must end in a Deadlock, not by its timeout, that has all the words.
void require_deadlock(const std::vector<std::string>& words, const std::function<void()>& operation) {
  const std::string text = message_of<Deadlock>(operation);
  for (const std::string& word : words)
    require(text.find(word) != std::string::npos, fmt::format("'{}' is missing in: {}", word, text));
}

TEST_P(DeadlockTest, DifferentNames) {
  run([](Flock& flock) {
    const auto start = start_block<float>(flock.rank(), 5);
    auto x = start;
    require_deadlock({"rank 0", "rank 1", "this name", "that name"}, [&] {
      flock.pair_gossip(x, 1 - flock.rank(), 0.5, flock.rank() == 0 ? "this name" : "that name");
    });
    require(same_bits(x, start), "the block was changed");
    flock.pair_gossip(x, 1 - flock.rank(), 0.5, "the same name");
    require_shares(x, {{0, 0.5}, {1, 0.5}}, 5, 0, 0, "after the deadlock");
  });
}

// A rank that waits in short intervals, to handle signals in between, is in a deadlock just like one that
// waits without interruption.
TEST_P(DeadlockTest, WaitsInParts) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    require_deadlock({"rank 0", "rank 1", "this name", "that name"}, [&] {
      Pending pending =
          flock.recv_nonblocking(x, 1 - flock.rank(), flock.rank() == 0 ? "this name" : "that name");
      while (!pending.wait_on(50ms)) continue;
    });
  });
}

// Rank 0 stops waiting before a deadlock is suspected, and then sends the message that rank 1 waits for.
TEST_P(DeadlockTest, APausedWaitIsInNoCycle) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    std::vector<float> x(3);
    const Rank other = 1 - flock.rank();
    Pending pending = flock.recv_nonblocking(x, other, flock.rank() == 0 ? "this name" : "that name");
    if (flock.rank() == 0) {
      const auto until = Clock::now() + 800ms;
      while (Clock::now() < until) require(!pending.wait_on(50ms), "there was nothing to come");
      pending.pause();
      await_suspicion(fabric, other);
      flock.send(x, other, "that name");
      pending.wait();
    } else {
      while (!pending.wait_on(50ms)) continue;
      flock.send(x, other, "this name");
    }
  });
}

// A rank that has thrown may end at once; the others must report the cycle, not its end.
TEST_P(DeadlockTest, TheFirstRankThatThrowsMayLeave) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    require_deadlock({"rank 0", "rank 1", "this name", "that name"},
                     [&] { flock.recv(x, 1 - flock.rank(), flock.rank() == 0 ? "this name" : "that name"); });
  });
}

TEST_P(DeadlockTest, OneInfersSourcesAndTheOtherDestinations) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    Weighted weights{0.5, std::nullopt, std::nullopt};
    (flock.rank() == 0 ? weights.sources : weights.destinations) =
        std::map<Rank, double>{{1 - flock.rank(), 0.5}};
    std::vector<float> x(3);
    require_deadlock({"rank 0", "rank 1", "sources", "destinations"},
                     [&] { flock.neighbor_allreduce(x, weights); });
    await_end_of_wait(fabric, 1 - flock.rank());  // the test above covers leaving early
  });
}

/// Of two or three ranks.
class OppositeOrdersTest : public BoardTest {};

// With more than two ranks, the others wait for a rank of the cycle and continue when it does.
TEST_P(OppositeOrdersTest, CollectivesInOppositeOrders) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    std::vector<float> x(3, static_cast<float>(flock.rank()));
    const char* first = flock.rank() == 1 ? "score" : "loss";
    const char* second = flock.rank() == 1 ? "loss" : "score";
    if (flock.rank() > 1) {
      flock.average(x, first);
    } else {
      require_deadlock({"rank 0", "rank 1", "loss", "score"}, [&] { flock.average(x, first); });
      require(x == std::vector<float>(3, static_cast<float>(flock.rank())), "the block was changed");
      // The next average sends what the other rank waits for: that rank must throw first.
      await_end_of_wait(fabric, 1 - flock.rank(), second);
    }
    flock.average(x, second);
  });
}

/// Of three ranks.
class DeadlockCycleTest : public BoardTest {};

TEST_P(DeadlockCycleTest, EveryRankOfACycleReportsTheWholeCycle) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    const Rank n = flock.size();
    const Rank right = (flock.rank() + 1) % n;
    const Rank left = (flock.rank() + n - 1) % n;
    std::vector<float> x = {static_cast<float>(flock.rank())};
    const auto message = [](Rank from) { return fmt::format("message from {}", from); };
    require_deadlock({"rank 0", "rank 1", "rank 2", message(0), message(1), message(2)},
                     [&] { flock.recv(x, right, message(right)); });
    for (const Rank other : {left, right}) await_end_of_wait(fabric, other, message((other + 1) % n));
    flock.send(x, left, "at last");
    flock.recv(x, right, "at last");
    require(x[0] == static_cast<float>(right), "value");
  });
}

// Rank 2 waits for a rank of the cycle. That wait succeeds once the rank has thrown.
TEST_P(DeadlockCycleTest, ARankOutsideTheCycleKeepsWaiting) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    std::vector<float> x = {static_cast<float>(flock.rank())};
    if (flock.rank() == 2) {
      // Staggers the checks: this rank looks at the waits of the others halfway between theirs.
      std::this_thread::sleep_for(25ms);
      flock.recv(x, 0, "for the outsider");
      require(x[0] == 0, "value");
      return;
    }
    require_deadlock({"rank 0 waits", "rank 1 waits"},
                     [&] { flock.recv(x, 1 - flock.rank(), flock.rank() == 0 ? "this name" : "that name"); });
    await_end_of_wait(fabric, 1 - flock.rank());
    if (flock.rank() == 0) flock.send(x, 2, "for the outsider");
  });
}

/// Waits that look like a cycle for longer than it takes to suspect one, but are none.
class PatienceTest : public BoardTest {
 protected:
  static constexpr auto kLong = 1500ms;  // a rank suspects a cycle after one second

  /// Rank 1 answers a message that rank 0 sends late. Before it sends, rank 0 calls `first` with the pending
  /// answer; waiting there must not count as a deadlock.
  void answer_after(const std::function<void(Flock& flock, Pending& answer)>& first) const {
    run([first](Flock& flock) {
      std::vector<float> x(1);
      if (flock.rank() == 0) {
        Pending answer = flock.recv_nonblocking(x, 1, "answer");
        first(flock, answer);
        answer.wait();
      } else {
        flock.recv(x, 0, "message");
        flock.send(x, 0, "answer");
      }
    });
  }
};

TEST_P(PatienceTest, PollingIsNotWaiting) {
  answer_after([](Flock& flock, Pending& answer) {
    for (const auto until = Clock::now() + kLong; Clock::now() < until; std::this_thread::sleep_for(1ms))
      require(!answer.ready(), "nothing has been asked yet");
    flock.send(std::vector<float>(1), 1, "message");
  });
}

TEST_P(PatienceTest, AWaitOfLimitedLengthIsNoCycle) {
  answer_after([](Flock& flock, Pending& answer) {
    require(!answer.wait_for(kLong), "nothing has been asked yet");
    flock.send(std::vector<float>(1), 1, "message");
  });
}

TEST_P(PatienceTest, AnotherThreadMayWaitMeanwhile) {
  answer_after([](Flock& flock, Pending& answer) {
    std::string error;
    std::thread waiter([&] {
      try {
        answer.wait();
      } catch (const Error& thrown) {
        error = thrown.what();
      }
    });
    std::this_thread::sleep_for(kLong);
    flock.send(std::vector<float>(1), 1, "message");
    waiter.join();
    require(error.empty(), error);
  });
}

// Rank 0 has sent the message that rank 1 waits for, but the message is slow. Both ranks wait, yet there is
// no deadlock.
TEST_P(PatienceTest, AMessageOnItsWayIsWaitedFor) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](std::shared_ptr<Fabric> fabric) {
    Faults slow;
    slow.seed = 4;
    slow.delay = 1;
    slow.longest_delay = 1800ms;
    const bool sender = fabric->rank() == 0;
    Flock flock(sender ? fabric : make_faulty(fabric, slow));
    std::vector<float> x(1);
    if (sender) {
      flock.send(x, 1, "message");
      Pending answer = flock.recv_nonblocking(x, 1, "answer");
      bool suspected = false;
      while (!answer.wait_on(10ms)) suspected = suspected || fabric->board().waiting(1).peer == 0;
      require(suspected, "too fast to be suspected: take another seed");
    } else {
      flock.recv(x, 0, "message");
      flock.send(x, 0, "answer");
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

// Rank 1 is stopped while its published wait is for a message that rank 0 has sent in the meantime.
TEST_P(PatienceTest, AStoppedRankIsWaitedFor) {
  run_with_board([](Flock& flock, Fabric& fabric) {
    std::vector<std::int64_t> x(1);
    if (flock.rank() == 1) {
      flock.send(std::vector<std::int64_t>{getpid()}, 0, "pid");
      flock.recv(x, 0, "message");
      require(x[0] == 77, "value");
      flock.send(x, 0, "answer");
      return;
    }
    flock.recv(x, 1, "pid");
    const auto sleeper = static_cast<pid_t>(x[0]);
    await_suspicion(fabric, 1);
    Pending answer;
    {
      const Stopped stopped(sleeper);
      flock.send(std::vector<std::int64_t>{77}, 1, "message");
      answer = flock.recv_nonblocking(x, 1, "answer");
      // Continues until this rank has looked for a deadlock several times.
      for (int looks = 0; looks < 10; looks += fabric.board().waiting(0).peer == 1 ? 1 : 0)
        require(!answer.wait_on(10ms), "the rank was not stopped");
    }
    answer.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, DeadlockTest, testing::ValuesIn(on_time({2}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, OppositeOrdersTest, testing::ValuesIn(on_time({2, 3}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, DeadlockCycleTest, testing::ValuesIn(on_time({3}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, PatienceTest, testing::ValuesIn(on_time({2}, true)), launch_name);

}  // namespace
}  // namespace starling::flock

#include <signal.h>
#include <thread>
#include <unistd.h>

#include "flock/reference.h"
#include "starling/fabric/faulty/faulty.h"

namespace starling::flock {
namespace {

using Clock = std::chrono::steady_clock;

/// Each case takes as long as a rank waits before it suspects anything: delayed messages add nothing.
std::vector<Launch> on_time(const std::vector<Rank>& sizes, bool only_processes) {
  auto all = launches(sizes, only_processes);
  std::erase_if(all, [](const Launch& launch) { return launch.launcher->name.starts_with("late"); });
  return all;
}

class DeadlockTest : public FlockTest {};

/// The operation must end in a Deadlock, soon, that has all the words.
void require_deadlock(const std::vector<std::string>& words, const std::function<void()>& operation) {
  const auto before = Clock::now();
  const std::string text = message_of<Deadlock>(operation);
  require(Clock::now() - before < 5s, "found far too late");
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

// Who waits in parts, to look at signals in between, is as stuck as who waits at a stretch.
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

// One of them stops waiting before a deadlock is suspected, and sends what the other waits for.
TEST_P(DeadlockTest, APausedWaitIsPartOfNone) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    const Rank other = 1 - flock.rank();
    Pending pending = flock.recv_nonblocking(x, other, flock.rank() == 0 ? "this name" : "that name");
    if (flock.rank() == 0) {
      const auto until = Clock::now() + 800ms;
      while (Clock::now() < until) require(!pending.wait_on(50ms), "there was nothing to come");
      pending.pause();
      std::this_thread::sleep_for(1500ms);  // by now rank 1 has looked for circles
      flock.send(x, other, "that name");
      pending.wait();
    } else {
      while (!pending.wait_on(50ms)) continue;
      flock.send(x, other, "this name");
    }
  });
}

// A rank that was told may end at once; the others must hear of the circle, not of its end.
TEST_P(DeadlockTest, TheFirstToBeToldMayLeave) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    require_deadlock({"rank 0", "rank 1", "this name", "that name"},
                     [&] { flock.recv(x, 1 - flock.rank(), flock.rank() == 0 ? "this name" : "that name"); });
  });
}

TEST_P(DeadlockTest, OneInfersSourcesAndTheOtherDestinations) {
  run([](Flock& flock) {
    Weighted weights{0.5, std::nullopt, std::nullopt};
    (flock.rank() == 0 ? weights.sources : weights.destinations) =
        std::map<Rank, double>{{1 - flock.rank(), 0.5}};
    std::vector<float> x(3);
    require_deadlock({"rank 0", "rank 1", "sources", "destinations"},
                     [&] { flock.neighbor_allreduce(x, weights); });
    std::this_thread::sleep_for(200ms);  // a matter of its own: see above
  });
}

/// Of two or three ranks.
class OppositeOrdersTest : public FlockTest {};

// Where there are more than two ranks, the others wait for one of the circle, and go on when it does.
TEST_P(OppositeOrdersTest, CollectivesInOppositeOrders) {
  run([](Flock& flock) {
    std::vector<float> x(3, static_cast<float>(flock.rank()));
    const char* first = flock.rank() == 1 ? "score" : "loss";
    const char* second = flock.rank() == 1 ? "loss" : "score";
    if (flock.rank() > 1) {
      flock.average(x, first);
    } else {
      require_deadlock({"rank 0", "rank 1", "loss", "score"}, [&] { flock.average(x, first); });
      require(x == std::vector<float>(3, static_cast<float>(flock.rank())), "the block was changed");
      std::this_thread::sleep_for(
          200ms);  // the next one sends what the other waits for: first it must be told
    }
    flock.average(x, second);
  });
}

/// Of three ranks.
class CircleTest : public FlockTest {};

TEST_P(CircleTest, EverybodyInACircleIsToldTheWholeOfIt) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    const Rank right = (flock.rank() + 1) % n;
    const Rank left = (flock.rank() + n - 1) % n;
    std::vector<float> x = {static_cast<float>(flock.rank())};
    const auto letter = [](Rank from) { return fmt::format("letter from {}", from); };
    require_deadlock({"rank 0", "rank 1", "rank 2", letter(0), letter(1), letter(2)},
                     [&] { flock.recv(x, right, letter(right)); });
    std::this_thread::sleep_for(200ms);
    flock.send(x, left, "at last");
    flock.recv(x, right, "at last");
    require(x[0] == static_cast<float>(right), "value");
  });
}

// Rank 2 waits for a rank that is in a circle, but its own wait ends well once that rank has been told.
TEST_P(CircleTest, WhoWaitsForACircleFromOutsideGoesOnWaiting) {
  run([](Flock& flock) {
    std::vector<float> x = {static_cast<float>(flock.rank())};
    if (flock.rank() == 2) {
      std::this_thread::sleep_for(25ms);  // looks at the others' waits in the middle between their looks
      flock.recv(x, 0, "for the outsider");
      require(x[0] == 0, "value");
      return;
    }
    require_deadlock({"rank 0 waits", "rank 1 waits"},
                     [&] { flock.recv(x, 1 - flock.rank(), flock.rank() == 0 ? "this name" : "that name"); });
    std::this_thread::sleep_for(200ms);  // the outsider sees the end of it before its letter comes
    if (flock.rank() == 0) flock.send(x, 2, "for the outsider");
  });
}

/// What looks like a circle for longer than it takes to suspect one, but is none.
class PatienceTest : public FlockTest {
 protected:
  static constexpr auto kLong = 1500ms;  // a rank suspects a circle after one second

  /// Rank 1 answers a letter that rank 0 writes late; `first` is what rank 0 does until then, with the answer
  /// that it already waits for, in a way that does not keep it from writing.
  void answer_after(const std::function<void(Flock& flock, Pending& answer)>& first) const {
    run([first](Flock& flock) {
      std::vector<float> x(1);
      if (flock.rank() == 0) {
        Pending answer = flock.recv_nonblocking(x, 1, "answer");
        first(flock, answer);
        answer.wait();
      } else {
        flock.recv(x, 0, "letter");
        flock.send(x, 0, "answer");
      }
    });
  }
};

TEST_P(PatienceTest, PollingIsNotWaiting) {
  answer_after([](Flock& flock, Pending& answer) {
    for (const auto until = Clock::now() + kLong; Clock::now() < until; std::this_thread::sleep_for(1ms))
      require(!answer.ready(), "nothing has been asked yet");
    flock.send(std::vector<float>(1), 1, "letter");
  });
}

TEST_P(PatienceTest, AWaitOfLimitedLengthIsNoCircle) {
  answer_after([](Flock& flock, Pending& answer) {
    require(!answer.wait_for(kLong), "nothing has been asked yet");
    flock.send(std::vector<float>(1), 1, "letter");
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
    flock.send(std::vector<float>(1), 1, "letter");
    waiter.join();
    require(error.empty(), error);
  });
}

// Rank 0 has sent what rank 1 waits for, and it takes its time: both wait, one of them not in vain.
TEST_P(PatienceTest, AMessageOnItsWayIsWaitedFor) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](std::shared_ptr<Fabric> fabric) {
    Faults slow;
    slow.seed = 4;
    slow.delay = 1;
    slow.longest_delay = 1800ms;
    const bool sender = fabric->rank() == 0;
    Flock flock(sender ? fabric : make_faulty(fabric, slow));
    std::vector<float> x(1);
    const auto before = Clock::now();
    if (sender) {
      flock.send(x, 1, "letter");
      flock.recv(x, 1, "answer");
      require(Clock::now() - before > 1200ms, "too fast to be suspected: take another seed");
    } else {
      flock.recv(x, 0, "letter");
      flock.send(x, 0, "answer");
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

// Rank 1 is stopped while the others see it wait for what rank 0 has sent it in the meantime.
TEST_P(PatienceTest, AStoppedRankIsWaitedFor) {
  run([](Flock& flock) {
    std::vector<std::int64_t> x(1);
    if (flock.rank() == 1) {
      flock.send(std::vector<std::int64_t>{getpid()}, 0, "pid");
      flock.recv(x, 0, "letter");
      require(x[0] == 77, "value");
      flock.send(x, 0, "answer");
      return;
    }
    flock.recv(x, 1, "pid");
    const auto sleeper = static_cast<pid_t>(x[0]);
    std::this_thread::sleep_for(1200ms);  // until rank 1 has told what it waits for
    const pid_t waker = fork();
    if (waker == 0) {
      usleep(1'500'000);
      kill(sleeper, SIGCONT);
      _exit(0);
    }
    kill(sleeper, SIGSTOP);
    flock.send(std::vector<std::int64_t>{77}, 1, "letter");
    const auto before = Clock::now();
    flock.recv(x, 1, "answer");
    require(Clock::now() - before > 1s, "the rank was not stopped");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, DeadlockTest, testing::ValuesIn(on_time({2}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, OppositeOrdersTest, testing::ValuesIn(on_time({2, 3}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, CircleTest, testing::ValuesIn(on_time({3}, true)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, PatienceTest, testing::ValuesIn(on_time({2}, true)), launch_name);

}  // namespace
}  // namespace starling::flock

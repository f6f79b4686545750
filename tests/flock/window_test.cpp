#include "starling/flock/window.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/flock_fixture.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class WindowTest : public FlockTest {};

TEST_P(WindowTest, PutsAreAveragedByUpdates) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    flock.set_schedule("ring");
    std::vector<double> x(1000, 1.0 * flock.rank());
    Window window = flock.create_window(x, "x");
    require(window.sources().size() == static_cast<std::size_t>(std::min(n - 1, 2)), "sources");
    window.put();
    flock.barrier();
    for (const Rank source : window.sources()) require(window.version(source) == 1, "version");
    window.update();
    for (const Rank source : window.sources())
      require(window.version(source) == 0, "version after an update");
    const Exchange exchange = make_schedule("ring", n)->exchange(0, flock.rank());
    double expected = exchange.self_weight * flock.rank();
    for (const Source& source : exchange.sources) expected += source.weight * source.rank;
    for (const double value : x) require(std::abs(value - expected) < 1e-12, "average");
    // A deposit stays until the next one replaces it.
    std::vector<double> y(1000);
    Window::Weights ones;
    for (const Rank source : window.sources()) ones[source] = 1;
    window.update_into(buffer_of(y), 0, ones);
    double sum = 0;
    for (const Source& source : exchange.sources) sum += source.rank;
    for (const double value : y) require(std::abs(value - sum) < 1e-12, "update_into");
    window.free();
  });
}

TEST_P(WindowTest, BeginsWithMyTensorOrEmpty) {
  run([](Flock& flock) {
    flock.set_schedule("exponential");
    std::vector<float> x = {5.0F + static_cast<float>(flock.rank())};
    Window full = flock.create_window(x, "full");
    std::vector<float> y = x;
    Window empty = flock.create_window(y, "empty", {.zero = true});
    full.update();
    require(std::abs(x[0] - (5.0F + static_cast<float>(flock.rank()))) < 1e-6F, "filled with my tensor");
    empty.update_then_collect();
    require(y[0] == 5.0F + static_cast<float>(flock.rank()), "nothing to collect");
    require(std::abs(full.p() - 1) < 1e-12 && empty.p() == 1, "p");
  });
}

TEST_P(WindowTest, GetsFetchTheLastUpdatedValue) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<double> x = {10.0 * flock.rank()};
    Window window = flock.create_window(x, "x", {.zero = true});
    Window::Weights halves;
    for (const Rank source : window.sources()) halves[source] = 0.5;
    window.get(halves);
    flock.barrier();  // no rank changes its value before all others have read it
    window.update_then_collect();
    double expected = 10.0 * flock.rank();
    for (const Rank source : window.sources()) expected += 5.0 * source;
    require(x[0] == expected, "half of what the others had");
    flock.barrier();
    // Gets the current values, without the owners' help.
    window.get(halves);
    flock.barrier();
    std::vector<double> all = flock.allgather(x);
    window.update_then_collect();
    for (const Rank source : window.sources()) expected += 0.5 * all[static_cast<std::size_t>(source)];
    require(x[0] == expected, "half of what the others have");
  });
}

TEST_P(WindowTest, AccumulateAndCollectLoseNothing) {
  // Every rank sends random shares of x and p to random neighbors while others do the same: nothing is lost
  // or counted twice, whatever the interleaving.
  run([](Flock& flock) {
    flock.set_schedule("exponential");
    const Rank n = flock.size();
    std::mt19937 random(static_cast<unsigned>(flock.rank()) + 7);
    std::vector<double> x(500, 1.0 + flock.rank());
    Window window = flock.create_window(x, "mass", {.zero = true, .readable = false});
    flock.barrier();
    for (int round = 0; round < 300; ++round) {
      const auto destinations = window.destinations();
      if (!destinations.empty()) {
        const Rank to = destinations[random() % destinations.size()];
        window.accumulate(Window::Weights{{to, 0.25}}, 0.75);
      }
      if (random() % 3 == 0) window.update_then_collect();
      if (random() % 10 == 0) std::this_thread::yield();
    }
    flock.barrier();
    window.update_then_collect();
    std::vector<double> total = {x[0], x[499], window.p()};
    require(x[0] == x[250], "torn");
    flock.allreduce(total);
    const double mass = n * (n + 1) / 2.0;
    require(std::abs(total[0] - mass) < 1e-9 && std::abs(total[1] - mass) < 1e-9,
            fmt::format("x: {}", total[0]));
    require(std::abs(total[2] - n) < 1e-9, fmt::format("p: {}", total[2]));
  });
}

TEST_P(WindowTest, PutsAreSeenWhole) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<std::int64_t> x(20'000, flock.rank());
    Window window = flock.create_window(x, "whole");
    std::vector<std::int64_t> seen(x.size());
    for (int round = 0; round < 60; ++round) {
      std::fill(x.begin(), x.end(), round * 1000 + flock.rank());
      window.put();
      for (const Rank source : window.sources()) {
        window.update_into(buffer_of(seen), 1, {{source, 1}});
        const std::int64_t theirs = seen[0] - x[0];
        for (const std::int64_t value : seen) require(value - x[0] == theirs, "torn");
        const std::int64_t who = theirs % 1000;
        require(who == source || who == flock.rank(), "from another rank");
      }
    }
  });
}

TEST_P(WindowTest, AMutexIsHeldByOne) {
  run([](Flock& flock) {
    flock.set_schedule("complete");
    std::vector<std::int64_t> counter(1);
    Window window = flock.create_window(counter, "counter", {.zero = true});
    // Read, add one, write back, under rank 0's mutex: no increment may be lost.
    for (int k = 0; k < 50; ++k) {
      const auto lock = window.mutex({0});
      std::vector<std::int64_t> value = {0};
      if (flock.rank() == 0) {
        window.update_then_collect();
        counter[0] += 1;
      } else {
        const std::vector<std::int64_t> before = counter;
        counter[0] = 1;
        window.accumulate(Window::Weights{{0, 1}});
        counter = before;
      }
    }
    flock.barrier();
    if (flock.rank() == 0) {
      window.update_then_collect();
      require(counter[0] == 50 * flock.size(), fmt::format("{}", counter[0]));
    }
  });
}

TEST_P(WindowTest, AWaitForAMutexCanBeCanceled) {
  run([](Flock& flock) {
    if (flock.size() == 1) return;
    std::vector<double> x(3);
    Window window = flock.create_window(x, "x");
    if (flock.rank() == 1) {
      const auto lock = window.mutex();
      flock.barrier("held");
      flock.barrier("given up");
    } else {
      flock.barrier("held");
      const std::string text = message_of<Error>([&] {
        auto lock = window.mutex({flock.rank(), 1}, [] { throw Error("enough"); });
      });
      require(text == "enough", text);
      const auto own = window.mutex();  // the mutex it already held has been released
      flock.barrier("given up");
    }
    flock.barrier();
  });
}

TEST_P(WindowTest, AreFoundAndFreedByName) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<double> x = {1};
    std::vector<double> y = {2};
    const auto refused = [](const std::string& part, const std::function<void()>& body) {
      const std::string text = message_of<InvalidArgument>(body);
      require(text.find(part) != std::string::npos, text);
    };
    refused("there is no window 'x' in this flock; there are: none", [&] { flock.window("x"); });
    flock.create_window(x, "x");  // the handle is dropped
    Window second = flock.create_window(y, "y");
    refused("there is no window 'z' in this flock; there are: x, y", [&] { flock.window("z"); });
    refused("there is no window 'z'", [&] { flock.window("z").free(); });
    refused("a window 'x' already; free it first or choose a name that is not one of: x, y",
            [&] { flock.create_window(y, "x"); });
    // The name gives the same window.
    flock.window("x").set_p(3);
    require(flock.window("x").p() == 3 && second.p() == 1, "p");
    flock.window("x").put();
    flock.barrier();
    for (const Rank source : flock.window("x").sources())
      require(flock.window("x").version(source) == 1, "version");
    flock.window("x").free();
    refused("there are: y", [&] { flock.window("x"); });
    Window again = flock.create_window(x, "x", {.zero = true});  // with nothing left from the old window
    again.update_then_collect();
    require(x[0] == 1 && again.p() == 1, "a new window");
    // A sub-flock has its own names.
    Flock part = flock.split(0);
    part.create_window(y, "x").set_p(7);
    require(flock.window("x").p() == 1 && part.window("x").p() == 7, "another flock's");
    second.free();
    flock.window("x").free();
    refused("there are: none", [&] { flock.window("y"); });
  });
}

TEST_P(WindowTest, AHandleKeepsItsFlock) {
  run([](Flock& flock) {
    std::vector<double> x = {1.0 * flock.rank()};
    const auto made = [&] {
      Flock part = flock.split(0);
      return part.create_window(x, "x", {.zero = true});
    };
    Window window = made();
    window.accumulate();
    flock.barrier();
    window.update_then_collect();
    double expected = flock.rank();
    for (const Rank source : window.sources()) expected += source;
    require(x[0] == expected, "after its flock's last handle");
    flock.barrier();
  });
}

TEST_P(WindowTest, MistakesSayWhatIsValid) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<float> x(3);
    std::vector<std::int32_t> whole(3);
    Window window = flock.create_window(x, "x", {.readable = false});
    Window integers = flock.create_window(whole, "integers");
    require(message_of<InvalidArgument>([&] {
              window.put(Window::Weights{{flock.rank(), 1.0}});
            }).find("is not one of this window's destinations: ") != std::string::npos,
            "destination");
    if (flock.size() > 1) {
      require(message_of<InvalidArgument>([&] { window.get(); }).find("not readable") != std::string::npos,
              "get");
      require(message_of<InvalidArgument>([&] {
                integers.put(Window::Weights{{integers.destinations()[0], 0.5}});
              }).find("only weights 0 and 1") != std::string::npos,
              "integers");
    }
    flock.set_schedule("od-equidyn(seed=1)");
    if (flock.size() > 2)
      require(message_of<InvalidArgument>([&] { flock.create_window(x, "random"); }).find("new neighbors") !=
                  std::string::npos,
              "random");
    flock.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, WindowTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

/// Tests that need processes.
class WindowFailureTest : public FlockTest {};

TEST_P(WindowFailureTest, AStoppedRankDelaysNoOtherAndLosesNothing) {
  run([](Flock& flock) {
    flock.set_schedule("complete");
    const Rank sleeper = flock.size() - 1;
    std::vector<double> x(5000, 1.0);
    Window window = flock.create_window(x, "mass", {.zero = true, .readable = false});
    std::vector<std::int64_t> pids = flock.allgather(std::vector<std::int64_t>{getpid()});
    flock.barrier();
    if (flock.rank() == 0) {
      // Stops the rank repeatedly, wherever it happens to be.
      const auto victim = static_cast<pid_t>(pids[static_cast<std::size_t>(sleeper)]);
      if (fork() == 0) {
        for (int k = 0; k < 20; ++k) {
          usleep(700 * static_cast<unsigned>(k % 5 + 1));
          kill(victim, SIGSTOP);
          usleep(20'000);
          kill(victim, SIGCONT);
        }
        _exit(0);
      }
    }
    std::mt19937 random(static_cast<unsigned>(flock.rank()));
    int rounds = 0;
    const auto until = std::chrono::steady_clock::now() + 300ms;
    while (std::chrono::steady_clock::now() < until) {
      const auto destinations = window.destinations();
      window.accumulate(Window::Weights{{destinations[random() % destinations.size()], 0.5}}, 0.5);
      if (random() % 2 == 0) window.update_then_collect();
      ++rounds;
    }
    require(flock.rank() == sleeper || rounds > 100, "delayed");
    flock.barrier();
    window.update_then_collect();
    std::vector<double> total = {x[0], window.p()};
    flock.allreduce(total);
    require(std::abs(total[0] - flock.size()) < 1e-6 && std::abs(total[1] - flock.size()) < 1e-6,
            fmt::format("{} {}", total[0], total[1]));
  });
}

TEST_P(WindowFailureTest, TheDeadLeaveWholeValuesAndFreeMutexes) {
  const auto ends = ends_of([](Flock& flock) {
    flock.set_schedule("complete");
    const Rank victim = flock.size() - 1;
    std::vector<std::int64_t> x(20'000);
    std::vector<std::int64_t> word(1);
    Window window = flock.create_window(x, "whole");
    if (flock.rank() == victim) {
      const pid_t me = getpid();
      const auto held = window.mutex({0, 1});
      std::fill(x.begin(), x.end(), 1);
      window.put();
      flock.barrier("held");
      // Its last message before it dies may be lost with it.
      for (Rank other = 0; other < victim; ++other) flock.recv(word, other, "seen");
      if (fork() == 0) {
        usleep(20'000);
        kill(me, SIGKILL);
        _exit(0);
      }
      for (std::int64_t round = 2;; ++round) {  // is killed in the middle of a put
        std::fill(x.begin(), x.end(), round);
        window.put();
      }
    }
    flock.barrier("held");
    flock.send(word, victim, "seen");
    std::vector<std::int64_t> seen(x.size());
    const auto until = std::chrono::steady_clock::now() + 200ms;
    while (std::chrono::steady_clock::now() < until) {
      window.update_into(buffer_of(seen), 0, {{victim, 1}});
      for (const std::int64_t value : seen) require(value == seen[0], "torn");
    }
    require(seen[0] > 0, "nothing was put");
    { const auto lock = window.mutex({0, 1}); }  // the dead rank held them
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.barrier("done");  // survivors stay as long as others may lock their mutexes
  });
  for (std::size_t r = 0; r + 1 < ends.size(); ++r) EXPECT_TRUE(ends[r].ok) << r << ": " << ends[r].message;
}

// Over a network some calls need an answer, and the memory for messages in flight is bounded.
TEST_P(WindowFailureTest, ACallToAStoppedRankWaitsAtMostTheTimeout) {
  if (GetParam().launcher->shares) GTEST_SKIP() << "with shared memory no call waits";
  run([](Flock& flock) {
    flock.set_schedule("complete");
    const Rank sleeper = flock.size() - 1;
    std::vector<std::int64_t> x(300'000, 1);
    Window window = flock.create_window(x, "x", {.zero = true, .shared = true});
    const auto pids = flock.allgather(std::vector<std::int64_t>{getpid()});
    std::vector<std::int64_t> put(1);
    if (flock.rank() == 0) {
      const auto victim = static_cast<pid_t>(pids[static_cast<std::size_t>(sleeper)]);
      const Stopped stopped(victim);
      flock.set_timeout(150ms);
      const auto too_late = [](const std::function<void()>& body) { return message_of<TimedOut>(body); };
      const std::string late = too_late([&] { window.get(Window::Weights{{sleeper, 1}}); });
      require(late == fmt::format("x: rank {} has not answered for longer than the timeout", sleeper), late);
      too_late([&] { static_cast<void>(window.mutex({sleeper})); });
      const std::string full = too_late([&] {
        for (; put[0] < 1000; ++put[0]) window.accumulate(Window::Weights{{sleeper, 1}});
      });
      require(full.find("has not taken what was put") != std::string::npos, full);
      require(put[0] >= 2 && put[0] < 100, fmt::format("{} values in flight", put[0]));
      flock.set_timeout(40s);
    }
    flock.broadcast(put, 0);
    if (flock.rank() == sleeper) {
      { const auto own = window.mutex(); }  // a rank whose wait timed out does not hold it
      window.update_then_collect();
      require(x[0] == 1 + put[0] && x.back() == x[0], fmt::format("{} instead of 1 + {}", x[0], put[0]));
    }
    flock.barrier();
  });
}

TEST_P(WindowFailureTest, CallsToADeadRankFailAtOnce) {
  if (GetParam().launcher->shares) GTEST_SKIP() << "the memory of a dead rank stays";
  const auto ends = ends_of([](Flock& flock) {
    const Rank victim = flock.size() - 1;
    flock.set_schedule("complete");
    std::vector<double> x = {1};
    Window window = flock.create_window(x, "x", {.zero = true, .shared = true});
    if (flock.rank() == victim) kill(getpid(), SIGKILL);
    require(eventually([&] { return !window.alive(victim); }), "the dead rank is not noticed");
    window.put();  // reaches the living neighbors only
    window.get(Window::Weights{{victim, 1}});
    require(window.version(victim) == 0, "received a value from the dead rank");
    std::vector<double> moved = {7};
    const auto lost = [&](const std::function<void()>& body) {
      const std::string text = message_of<PeerLost>(body);
      require(text.find(fmt::format("rank {} is lost", victim)) != std::string::npos, text);
    };
    lost([&] { window.average_with(victim, x, 0.5, moved); });
    lost([&] { static_cast<void>(window.mutex({victim})); });
    flock.on_peer_failure(OnPeerFailure::reweight);
    window.average_with(victim, x, 0.5, moved);
    require(moved[0] == 0, "moved toward the dead rank");
    flock.barrier("done");
  });
  for (std::size_t r = 0; r + 1 < ends.size(); ++r) EXPECT_TRUE(ends[r].ok) << r << ": " << ends[r].message;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, WindowFailureTest, testing::ValuesIn(launches({3, 5}, true)), launch_name);

}  // namespace
}  // namespace starling::flock

// Covers windows on device memory (starling/flock/cell.h, fabric/device_pool.h) whose ranks are stopped or
// killed: values are there whole or not at all, and nobody waits. window_soak_test.cpp has random moments.
#include <csignal>
#include <cstdlib>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/flock_fixture.h"
#include "kernel/device_block.h"
#include "kernel/peer_mappings.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

constexpr Rank kWindowRanks = 3;
constexpr Rank kWindowVictim = 2;
constexpr std::size_t kWindowCount = 400'000;  // each value has a piece of device memory of its own

std::vector<double> of_value(double value) {
  return std::vector<double>(kWindowCount, value);
}

void run_but_the_victim(const FlockBody& body, bool killed) {
  const auto ends = device_launchers()[1].run(kWindowRanks, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule("complete");
    body(flock);
  });
  for (Rank rank = 0; rank < kWindowRanks; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    if (killed && rank == kWindowVictim)
      EXPECT_EQ(end.signal, SIGKILL) << end.message;
    else
      EXPECT_TRUE(end.ok) << "rank " << rank << ": " << end.message;
  }
}

// The calls of a body take far less than it takes until a stopped rank goes on, which is never.
template <typename Body>
void require_soon(const Body& body) {
  const auto before = std::chrono::steady_clock::now();
  body();
  require(std::chrono::steady_clock::now() - before < 5s, "waited for the stopped rank");
}

// What it has given is read from memory that nobody has looked at before, and what it gets waits for it.
TEST(DeviceWindowStopTest, AStoppedRankDelaysNobody) {
  run_but_the_victim(
      [](Flock& flock) {
        const auto pids = flock.allgather(std::vector<std::int64_t>{getpid()});
        const DeviceBlock<double> x(of_value(1));
        Window window = flock.create_window(x.buffer(), "x", {.zero = true});
        std::vector<std::int64_t> word(1);
        if (flock.rank() == kWindowVictim) {
          for (int k = 0; k < 3; ++k) window.accumulate(Window::Weights{{0, 1}});
          x.set(of_value(5));
          window.publish();
          x.set(of_value(6));
          window.publish();
          flock.send(word, 0, "given");
        }
        constexpr int kDeposits = 40;
        if (flock.rank() == 0) {
          flock.recv(word, kWindowVictim, "given");
          const Stopped stopped(static_cast<pid_t>(pids[static_cast<std::size_t>(kWindowVictim)]));
          require_soon([&] {
            window.update_then_collect();
            require(x.values() == of_value(4) && window.p() == 4, "what it gave");
            window.get(Window::Weights{{kWindowVictim, 1}});
            window.update_then_collect();
            require(x.values() == of_value(10), "what it has published");
            x.set(of_value(1));
            window.set_p(1);
            for (int k = 0; k < kDeposits; ++k) window.accumulate(Window::Weights{{kWindowVictim, 1}});
          });
        }
        flock.barrier();
        if (flock.rank() != kWindowVictim) return flock.barrier();
        window.update_then_collect();
        require(x.values() == of_value(6 + kDeposits) && window.p() == 1 + kDeposits, "what it got");
        flock.barrier();
      },
      false);
}

TEST(DeviceWindowDeathTest, WhatTheDeadHaveGivenIsThere) {
  run_but_the_victim(
      [](Flock& flock) {
        const DeviceBlock<double> x(of_value(1));
        Window window = flock.create_window(x.buffer(), "x", {.zero = true, .readable = false});
        std::vector<std::int64_t> word(1);
        if (flock.rank() == kWindowVictim) {
          for (int k = 0; k < 3; ++k) window.accumulate();
          for (const Rank other : {0, 1}) {
            flock.send(word, other, "given");
            flock.recv(word, other, "heard");
          }
          kill(getpid(), SIGKILL);
        }
        flock.recv(word, kWindowVictim, "given");
        flock.send(word, kWindowVictim, "heard");
        require(eventually([&] { return !window.alive(kWindowVictim); }), "the victim lives");
        window.accumulate();
        flock.barrier();
        window.update_then_collect();
        require(x.values() == of_value(1 + 3 + 1) && window.p() == 5, "what was given");
        for (int k = 0; k < 10; ++k) window.accumulate();  // also to the dead
        flock.barrier();
        window.free();
        if (std::getenv("STARLING_TEST_DEVICE") == nullptr)
          require(kernel::peer_mappings() == 0, "the memory of the dead is kept");
      },
      true);
}

TEST(DeviceWindowDeathTest, WhatADeadRanksDeviceHasNotWrittenIsNotThere) {
  run_but_the_victim(
      [](Flock& flock) {
        static kernel::Flag gate = 0;
        const DeviceBlock<double> x(of_value(1));
        Window window = flock.create_window(x.buffer(), "x", {.zero = true});
        if (flock.rank() == kWindowVictim) {
          window.accumulate();
          flock.barrier("given");
          const pid_t victim = getpid();
          if (fork() == 0) {
            usleep(50'000);
            kill(victim, SIGKILL);
            _exit(0);
          }
          kernel::device().register_flags(&gate, sizeof(gate));
          kernel::device().wait(gate, 1);
          window.accumulate();  // its device never comes to it
          throw Error("accumulated");
        }
        flock.barrier("given");
        require(eventually([&] { return !window.alive(kWindowVictim); }), "the victim lives");
        window.update_then_collect();
        require(x.values() == of_value(2) && window.p() == 2, "only what is whole");
        flock.barrier();
      },
      true);
}

}  // namespace
}  // namespace starling::flock

// Covers shared windows: window and window_state of starling/flock.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <thread>

#include "flock/flock_fixture.h"
#include "starling/topology/registry.h"

// Tests windows whose values all ranks change, their progress and age.

namespace starling::flock {
namespace {

class SharedWindowTest : public FlockTest {};

// All ranks average with each other at the same time: half weights keep the sum, and all values converge.
TEST_P(SharedWindowTest, AveragingWithHalfWeightKeepsTheSum) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    flock.set_schedule("complete");
    std::vector<double> x(100, 1.0 * flock.rank());
    Window window = flock.create_window(x, "x", {.shared = true});
    std::vector<double> now(x.size());
    std::vector<double> moved(x.size());
    const auto meet = [&](Rank other) {
      if (other == flock.rank()) return;
      window.load(now);
      window.average_with(other, now, 0.5, moved);
      for (double& value : moved) value = -value;
      window.add(moved);
    };
    for (int round = 0; round < 200; ++round)
      for (Rank other = 0; other < n; ++other) meet(other);
    // Two ranks that average with each other at the same moment only swap values. In turns, they certainly
    // converge.
    for (int round = 0; round < 20; ++round)
      for (Rank turn = 0; turn < n; ++turn) {
        flock.barrier();
        if (turn != flock.rank()) continue;
        for (Rank other = 0; other < n; ++other) meet(other);
      }
    flock.barrier();
    window.load(now);
    flock.barrier();
    const double expected = 0.5 * (n - 1);
    std::vector<double> sum = flock.allreduce(std::vector<double>{now[0], now[99]});
    for (const double value : sum) require(std::abs(value - n * expected) < 1e-9, "the sum");
    require(std::abs(now[50] - expected) < 1e-3, fmt::format("{} instead of {}", now[50], expected));
    require(now[0] == now[99], "whole values");
  });
}

TEST_P(SharedWindowTest, StoreReplacesAndOthersChangesAreVisible) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<float> x = {1};
    Window window = flock.create_window(x, "x", {.shared = true});
    const std::vector<float> mine = {10.0F * static_cast<float>(flock.rank())};
    window.store(mine);
    flock.barrier();
    const Rank next = (flock.rank() + 1) % flock.size();
    const std::vector<float> here(1);
    std::vector<float> moved(1), now(1);
    if (flock.size() > 1) {
      window.average_with(next, here, 0.25, moved);
      require(moved[0] == -2.5F * static_cast<float>(next), "a quarter of the way");
    }
    flock.barrier();
    window.load(now);
    require(now[0] == (flock.size() > 1 ? 0.75F : 1.0F) * mine[0], "what is left");
    require(x[0] == 1, "the tensor only lends its shape");
  });
}

TEST_P(SharedWindowTest, OtherWindowsRefuseSharedOperations) {
  run([](Flock& flock) {
    std::vector<float> x = {1};
    Window window = flock.create_window(x, "x");
    const std::string text = message_of<InvalidArgument>([&] { window.load(x); });
    require(text.find("only a window made as shared") != std::string::npos, text);
  });
}

TEST_P(SharedWindowTest, ValuesHaveTheTensorsTypeLengthAndMemory) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    std::vector<double> wide(3);
    std::vector<float> longer(4);
    Window window = flock.create_window(x, "x", {.shared = true});
    const Buffer device(DType::float32, x.data(), x.size(), MemoryKind::cuda, nullptr);
    const auto refused = [](const std::string& why, const std::function<void()>& call) {
      const std::string text = message_of<InvalidArgument>(call);
      require(text == why, text);
    };
    const auto takes = [](const std::string& call, const std::string& given) {
      return fmt::format("x: {} takes 3 x float32 in host memory, as this window's tensor has, not {}", call,
                         given);
    };
    const std::string of_doubles = "3 x float64 in host memory";
    const std::string too_long = "4 x float32 in host memory";
    const std::string on_device = "3 x float32 in CUDA memory";
    refused(takes("put_value", of_doubles), [&] { window.put_value(wide); });
    refused(takes("accumulate_value", too_long), [&] { window.accumulate_value(longer); });
    refused(takes("load", too_long), [&] { window.load(longer); });
    refused(takes("store", of_doubles), [&] { window.store(wide); });
    refused(takes("add", on_device), [&] { window.add(device); });
    refused(takes("average_with", of_doubles), [&] { window.average_with(0, wide, 0.5, x); });
    refused(takes("average_with", on_device),
            [&] { window.average_with(0, const_buffer_of(x), 0.5, device); });
    refused(takes("update_into", too_long), [&] { window.update_into(buffer_of(longer), 1, {}); });
    flock.barrier();
  });
}

// A deposit has the age of its sender at the time of the deposit.
TEST_P(SharedWindowTest, ReportsTheAgeOfDeposits) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<double> x = {1};
    Window window = flock.create_window(x, "x", {.zero = true});
    window.set_progress(3);
    window.put();
    window.set_progress(8);
    flock.barrier();
    for (const Rank source : window.sources()) {
      require(window.progress(source) == 8, "progress");
      require(window.alive(source), "alive");
    }
    flock.barrier();  // no rank leaves before this
    window.update();
    const Staleness staleness = window.staleness();
    require(staleness.used == window.sources().size(), "uses");
    require(window.sources().empty() || (staleness.mean() == 5 && staleness.oldest == 5), "age");
  });
}

TEST_P(SharedWindowTest, ClearedSlotsAreEmpty) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    std::vector<double> x = {1};
    Window window = flock.create_window(x, "x");
    flock.barrier();
    window.clear();
    window.update_then_collect();
    require(x[0] == 1 && window.p() == 1, "nothing was collected");
  });
}

TEST_P(SharedWindowTest, FollowsAScheduleOfItsOwn) {
  run([](Flock& flock) {
    if (flock.size() < 3) return;
    flock.set_schedule("ring");
    std::vector<double> x = {1};
    Window window = flock.create_window(x, "x", {.schedule = make_schedule("star", flock.size())});
    const std::size_t expected = flock.rank() == 0 ? static_cast<std::size_t>(flock.size() - 1) : 1;
    require(window.sources().size() == expected, "the star's neighbors");
    require(flock.has_window("x") && !flock.has_window("y"), "windows by name");
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, SharedWindowTest, testing::ValuesIn(launches({1, 2, 4}, false)), launch_name);

}  // namespace
}  // namespace starling::flock

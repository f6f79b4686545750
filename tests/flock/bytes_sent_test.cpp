// Covers Flock::bytes_sent() (starling/flock/flock.h) for every operation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "flock/flock_fixture.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/topology/registry.h"

// Tests what bytes_sent() counts for every kind of operation.

namespace starling::flock {
namespace {

constexpr std::uint64_t kShort = 1000;  // floats
// 9 MiB of floats, which travel in several parts
constexpr std::uint64_t kLong = (std::uint64_t{9} << 20) / 4;

class BytesTest : public FlockTest {};

// Runs `work` and compares the number of bytes that it sent.
void expect_sent(const Flock& flock, std::uint64_t expected, const std::string& what,
                 const std::function<void()>& work) {
  const std::uint64_t before = flock.bytes_sent();
  work();
  require(flock.bytes_sent() - before == expected,
          fmt::format("{}: {} bytes instead of {}", what, flock.bytes_sent() - before, expected));
}

// The number of ranks that receive a block, members of the exchange's group included.
std::uint64_t degree(const std::string& topology, const Flock& flock, Step step = 0) {
  const Exchange exchange = make_schedule(topology, flock.size())->exchange(step, flock.rank());
  const auto others = static_cast<std::uint64_t>(std::max<std::int64_t>(1, exchange.group.size()) - 1);
  return exchange.destinations.size() + others;
}

TEST_P(BytesTest, OfNeighborAverages) {
  run([](Flock& flock) {
    require(flock.bytes_sent() == 0, "before anything");
    for (const std::uint64_t count : {kShort, kLong}) {
      std::vector<float> x(count, 1);
      const std::uint64_t bytes = count * sizeof(float);
      for (const char* topology : {"ring", "complete", "star", "one-peer-exponential"}) {
        if (count == kLong && topology[0] == 'c') continue;
        flock.set_schedule(topology);
        expect_sent(flock, bytes * degree(topology, flock), fmt::format("{} {}", topology, count),
                    [&] { flock.neighbor_allreduce(x); });
      }
      flock.set_schedule("ring");
      expect_sent(flock, bytes * degree("ring", flock), "zero-copy", [&] {
        auto slot = flock.outgoing<float>(count);
        std::fill_n(slot.data(), count, 1.0F);
        flock.neighbor_allreduce(std::move(slot), x);
      });
      expect_sent(flock, bytes * degree("ring", flock), "of rounds", [&] {
        NeighborExchanger rounds(flock, make_schedule("ring", flock.size()));
        rounds.start({{const_buffer_of(x), {}, 0}}).wait();
      });
    }
    std::vector<std::vector<float>> group(3, std::vector<float>(kShort));
    const Rank left = (flock.rank() + flock.size() - 1) % flock.size();
    flock.set_schedule("ring");
    const std::uint64_t before = flock.bytes_sent();
    flock.neighbor_allreduce_group(group);
    const std::uint64_t sent = flock.bytes_sent() - before;
    require(sent >= 3 * kShort * sizeof(float) * degree("ring", flock) &&
                sent < 3 * kShort * sizeof(float) * degree("ring", flock) + 1000,
            fmt::format("a group of tensors: {}", sent));
    if (flock.size() > 1)
      expect_sent(flock, kShort * sizeof(float), "weights of one's own", [&] {
        const Rank right = (flock.rank() + 1) % flock.size();
        flock.neighbor_allreduce(
            group[0],
            Weighted{.self_weight = 0.5, .sources = {{{left, 0.5}}}, .destinations = {{{right, 1.0}}}});
      });
  });
}

// A short block goes to every rank as a whole, in one round. Of a long one, each rank sends (n - 1) / n
// twice.
TEST_P(BytesTest, OfReductions) {
  run([](Flock& flock) {
    const auto n = static_cast<std::uint64_t>(flock.size());
    for (const std::uint64_t count : {840 * n, 16'000 * n, kLong / n * n}) {
      std::vector<float> x(count, 1);
      const bool whole = count == 840 * n;
      const std::uint64_t bytes = (n - 1) * (whole ? count : 2 * (count / n)) * sizeof(float);
      for (int again = 0; again < 2; ++again)
        expect_sent(flock, bytes, fmt::format("allreduce of {}", count), [&] { flock.allreduce(x); });
      std::vector<float> out(count);
      expect_sent(flock, bytes, "nonblocking", [&] { flock.allreduce_nonblocking(x, out).wait(); });
    }
    std::vector<float> x(840 * n, 1);
    flock.set_allreduce("ring");
    expect_sent(flock, 2 * (n - 1) * 840 * sizeof(float), "along a ring", [&] { flock.allreduce(x); });
  });
}

TEST_P(BytesTest, OfTheOtherOperations) {
  run([](Flock& flock) {
    const auto n = static_cast<std::uint64_t>(flock.size());
    const std::uint64_t bytes = kShort * sizeof(float);
    std::vector<float> x(kShort, 1);
    expect_sent(flock, flock.rank() == 0 ? bytes * (n - 1) : 0, "broadcast", [&] { flock.broadcast(x, 0); });
    expect_sent(flock, bytes * (n - 1), "allgather", [&] { flock.allgather(x); });
    if (n > 1) {
      expect_sent(flock, flock.rank() == 0 ? bytes : 0, "send", [&] {
        if (flock.rank() == 0) flock.send(x, 1);
        if (flock.rank() == 1) flock.recv(x, 0);
      });
    }
    Relay relay = flock.relay("chain");
    for (int step = 0; step < 2; ++step)
      expect_sent(flock, bytes * degree("chain", flock), "relay", [&] { relay.average(x); });
    if (n > 2) {
      Relay trees = flock.relay("double-binary-trees", "two");
      const std::uint64_t halves =
          degree("double-binary-trees", flock, 0) + degree("double-binary-trees", flock, 1);
      expect_sent(flock, bytes / 2 * halves, "relay over two trees", [&] { trees.average(x); });
    }
  });
}

TEST_P(BytesTest, OfWindows) {
  if (!GetParam().launcher->shares) GTEST_SKIP() << "no memory is shared over a network";
  run([](Flock& flock) {
    const std::uint64_t bytes = kShort * sizeof(float);
    std::vector<float> x(kShort, 1);
    flock.set_schedule("ring");
    Window window = flock.create_window(x, "window");
    expect_sent(flock, bytes * degree("ring", flock), "put", [&] { window.put(); });
    expect_sent(flock, bytes * degree("ring", flock), "accumulate", [&] { window.accumulate(); });
    flock.barrier();
    expect_sent(flock, 0, "update", [&] { window.update(); });
    window.free();
  });
}

// Bytes that a sub-flock sends count as this rank's, too.
TEST_P(BytesTest, OfSubFlocks) {
  run([](Flock& flock) {
    Flock part = flock.split(flock.rank() % 2);
    std::vector<float> x(kShort);
    expect_sent(flock, (static_cast<std::uint64_t>(part.size()) - 1) * kShort * sizeof(float), "a part",
                [&] { part.allreduce(x); });
    require(part.bytes_sent() == flock.bytes_sent(), "one count");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, BytesTest,
                         testing::Values(Launch{&launchers()[0], 1}, Launch{&launchers()[0], 2},
                                         Launch{&launchers()[0], 4}, Launch{&launchers()[1], 3}),
                         launch_name);

}  // namespace
}  // namespace starling::flock

// Covers the bytes that operations of starling/flock post to the fabric.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "flock/flock_fixture.h"
#include "flock/metered_fabric.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/topology/registry.h"

// Counts, at the fabric, the bytes that would travel over a network: no rank receives bytes that it does not
// read.

namespace starling::flock {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);
// Floats, which travel in ten parts
constexpr std::uint64_t kTenParts = (std::uint64_t{9} << 20) / kFloat + 17;

/// A flock over a fabric that counts bytes.
class MeteredFlock {
 public:
  explicit MeteredFlock(const std::shared_ptr<Fabric>& fabric)
      : meter_(std::make_shared<MeteredFabric>(fabric)), flock(meter_) {
    flock.set_timeout(40s);
  }

  /// Runs `work`, which must receive `received` bytes on this rank and count as sent the bytes that it posts.
  void expect(std::uint64_t received, const std::string& what, const std::function<void()>& work) {
    const std::uint64_t posted_before = meter_->posted;
    const std::uint64_t sent_before = flock.bytes_sent();
    work();
    const std::uint64_t total = meter_->received;
    const std::uint64_t came = total - received_;
    const std::uint64_t posted = meter_->posted - posted_before;
    const std::uint64_t sent = flock.bytes_sent() - sent_before;
    require(came == received, fmt::format("{}: {} bytes came instead of {}", what, came, received));
    require(sent == posted, fmt::format("{}: {} bytes counted, {} posted", what, sent, posted));
    // A faster rank waits here until all ranks have read their counters; its next messages may arrive while
    // others still wait.
    received_ = total;
    flock.barrier();
  }

 private:
  std::shared_ptr<MeteredFabric> meter_;
  std::uint64_t received_ = 0;  // bytes of all operations so far; barriers have none

 public:
  Flock flock;
};

class WireBytesTest : public testing::TestWithParam<Launch> {
 protected:
  static void run(const std::function<void(MeteredFlock& metered)>& body) {
    const auto ends = GetParam().launcher->run(GetParam().size, [&](const std::shared_ptr<Fabric>& fabric) {
      MeteredFlock metered(fabric);
      body(metered);
    });
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

std::uint64_t heard_by(const std::string& topology, const Flock& flock, Step step = 0) {
  return make_schedule(topology, flock.size())->exchange(step, flock.rank()).sources.size();
}

TEST_P(WireBytesTest, AllReduceTakesTwiceTheBlockLessOneShare) {
  run([](MeteredFlock& metered) {
    Flock& flock = metered.flock;
    const auto n = static_cast<std::uint64_t>(flock.size());
    for (const std::uint64_t share : {std::uint64_t{9000}, std::uint64_t{600'000}}) {
      std::vector<float> x(share * n, 1);
      metered.expect(2 * (n - 1) * share * kFloat, "allreduce",
                     [&] { flock.allreduce(x, Reduction::average); });
      require(x == std::vector<float>(share * n, 1), "the average");
      metered.expect((n - 1) * share * kFloat, "reduce-scatter", [&] { flock.reduce_scatter(x); });
    }
    // A block in pieces whose shares are not all equal.
    const std::uint64_t count = 9001 * n - 1;
    const auto place = static_cast<std::uint64_t>(flock.rank());
    const std::uint64_t mine = count * (place + 1) / n - count * place / n;
    std::vector<std::vector<float>> pieces = {std::vector<float>(1234, 1),
                                              std::vector<float>(count - 1234, 1)};
    metered.expect(((n - 1) * mine + count - mine) * kFloat, "uneven",
                   [&] { flock.allreduce_group(pieces); });
    // Fewer elements than ranks: some ranks receive an empty message.
    std::vector<float> few(n - 1, 1);
    const std::uint64_t own = (n - 1) * (place + 1) / n - (n - 1) * place / n;
    metered.expect((n - 1) * own * kFloat, "few", [&] { flock.reduce_scatter(few); });
  });
}

TEST_P(WireBytesTest, ALongBlockComesOncePerNeighbor) {
  run([](MeteredFlock& metered) {
    Flock& flock = metered.flock;
    for (const char* topology : {"ring", "one-peer-exponential"}) {
      const std::uint64_t bytes = heard_by(topology, flock) * kTenParts * kFloat;
      std::vector<float> x(kTenParts, 1);
      std::vector<float> out(kTenParts);
      flock.set_schedule(topology);
      metered.expect(bytes, "in place", [&] { flock.neighbor_allreduce(x); });
      flock.set_schedule(topology);
      metered.expect(bytes, "out of place", [&] { flock.neighbor_allreduce(x, out); });
      flock.set_schedule(topology);
      metered.expect(bytes, "zero-copy", [&] {
        auto slot = flock.outgoing<float>(kTenParts);
        std::fill(slot.begin(), slot.end(), 1.0F);
        flock.neighbor_allreduce(std::move(slot), out);
      });
      require(out == x, "the average");
    }
  });
}

TEST_P(WireBytesTest, CountsTheBytesThatArePosted) {
  run([](MeteredFlock& metered) {
    Flock& flock = metered.flock;
    const auto n = static_cast<std::uint64_t>(flock.size());
    constexpr std::uint64_t kCount = 1000;
    constexpr std::uint64_t kBytes = kCount * kFloat;
    std::vector<float> x(kCount, 1);
    metered.expect((n - 1) * kBytes, "short allreduce", [&] { flock.allreduce(x); });
    metered.expect((n - 1) * kBytes, "allgather", [&] { flock.allgather(x); });
    metered.expect(flock.rank() == 0 ? 0 : kBytes, "broadcast", [&] { flock.broadcast(x, 0); });
    flock.set_schedule("exponential");
    metered.expect(heard_by("exponential", flock) * kBytes, "neighbor average",
                   [&] { flock.neighbor_allreduce(x); });
    flock.set_schedule("exponential");
    metered.expect(heard_by("exponential", flock) * kBytes, "neighbor gather",
                   [&] { flock.neighbor_allgather(x); });
    Relay relay = flock.relay("chain");
    metered.expect(heard_by("chain", flock) * kBytes, "relay", [&] { relay.average(x); });
    if (n % 2 == 0) {
      flock.set_schedule("hierarchical(ring,local=2)");
      metered.expect((1 + heard_by("hierarchical(ring,local=2)", flock)) * kBytes, "mean within pairs first",
                     [&] { flock.neighbor_allreduce(x); });
    }
    // Of two blocks in outgoing memory, each neighbor receives only the one it uses.
    NeighborExchanger rounds(flock, make_schedule("ceca", flock.size()), "two blocks");
    for (Step step = 0; step < 2; ++step) {
      Outgoing memory = flock.outgoing_bytes(2 * kBytes);
      auto* blocks = reinterpret_cast<float*>(memory.bytes().data());
      std::fill_n(blocks, 2 * kCount, 1.0F);
      const Pieces pieces = {{{DType::float32, blocks, kCount}, {}, 0},
                             {{DType::float32, blocks + kCount, kCount}, {}, kBytes}};
      metered.expect(heard_by("ceca", flock, step) * kBytes, "two blocks",
                     [&] { rounds.start(pieces, std::move(memory)).wait(); });
    }
    for (const char* way : {"ring", "doubling", "halving", "tree"}) {
      flock.set_allreduce(way);
      std::vector<float> y(840 * n, 1);
      std::uint64_t received = 0;
      for (const ReduceRound& round :
           reduce_rounds(parse_allreduce_algorithm(way), static_cast<std::size_t>(flock.rank()), n, y.size()))
        for (const auto& receive : round.receives) received += (receive.end - receive.begin) * kFloat;
      metered.expect(received, way, [&] { flock.allreduce(y); });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, WireBytesTest, testing::ValuesIn(launches({2, 4, 5}, false)), launch_name);

}  // namespace
}  // namespace starling::flock

#include "starling/flock/long_average.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "fabric/harness.h"
#include "flock/flock_fixture.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/flock/flock.h"
#include "starling/kernel/combine.h"

namespace starling::flock {
namespace {

constexpr std::size_t kCount = 2'300'017;  // floats: nine parts, the last one short

std::vector<float> start_of(Rank rank) {
  std::vector<float> x(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    x[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(rank) * 11) % 1009) / 7;
  return x;
}

// The expected result of a step, computed in one pass over whole blocks. The weight of a source in `without`
// stays with the receiver.
std::vector<float> mixed(const Exchange& exchange, Rank rank, Rank without = -1) {
  std::vector<std::vector<float>> blocks = {start_of(rank)};
  double own = exchange.self_weight;
  for (const Source& source : exchange.sources) {
    blocks.push_back(start_of(source.rank));
    if (source.rank == without) own += source.weight;
  }
  std::vector<Term> terms = {{blocks[0].data(), own}};
  for (std::size_t i = 0; i < exchange.sources.size(); ++i)
    if (exchange.sources[i].rank != without)
      terms.push_back({blocks[i + 1].data(), exchange.sources[i].weight});
  std::vector<float> out(kCount);
  combine(DType::float32, out.data(), terms, kCount);
  return out;
}

class LongAverageTest : public testing::TestWithParam<Launch> {
 protected:
  std::vector<RankEnd> run(const std::function<void(Flock& flock)>& body, const Faults& faults = {}) const {
    return GetParam().launcher->run(GetParam().size, [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(make_faulty(fabric, faults));
      flock.set_timeout(std::chrono::seconds(40));
      body(flock);
    });
  }
};

TEST_P(LongAverageTest, TheBitsAreThoseOfOnePass) {
  for (const char* spec : {"exponential", "one-peer-exponential"}) {
    const auto ends = run([&](Flock& flock) {
      flock.set_schedule(spec);
      const Exchange exchange = flock.schedule()->exchange(0, flock.rank());
      require(LongAverage::suits(exchange, {{const_buffer_of(start_of(0)), {}, 0}}), "not long enough");
      const std::vector<float> expected = mixed(exchange, flock.rank());
      std::vector<float> x = start_of(flock.rank());
      std::vector<float> out(kCount);
      flock.set_schedule(spec);
      flock.neighbor_allreduce(x, out);
      require(out == expected, "out of place");
      require(x == start_of(flock.rank()), "the input was changed");
      flock.set_schedule(spec);
      flock.neighbor_allreduce(x);
      require(x == expected, "in place");
      // Starts two averages and waits in reverse order.
      std::vector<float> y = start_of(flock.rank());
      std::vector<float> z(kCount);
      flock.set_schedule(spec);
      Pending first = flock.neighbor_allreduce_nonblocking(y, out, "first");
      flock.set_schedule(spec);
      Pending second = flock.neighbor_allreduce_nonblocking(y, z, "second");
      second.wait();
      first.wait();
      require(out == expected && z == expected, "nonblocking");
    });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  }
}

// Some ranks have only destinations in a step, and some post from outgoing memory: all must cut blocks at the
// same places.
TEST_P(LongAverageTest, SenderAndReceiverCutBlocksAlike) {
  const auto ends = run([&](Flock& flock) {
    flock.set_schedule("one-peer-of(star)");
    for (Step step = 0; step < 3; ++step) {
      const std::vector<float> expected = mixed(flock.schedule()->exchange(step, flock.rank()), flock.rank());
      std::vector<float> out(kCount);
      if (flock.rank() % 2 == 0) {
        auto slot = flock.outgoing<float>(kCount);
        const auto start = start_of(flock.rank());
        std::copy(start.begin(), start.end(), slot.begin());
        flock.neighbor_allreduce(std::move(slot), out);
      } else {
        flock.neighbor_allreduce(start_of(flock.rank()), out);
      }
      require(out == expected, "value");
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

class LongPairTest : public LongAverageTest {};

TEST_P(LongPairTest, DifferentLengthsAreAnErrorBeforeAnythingIsMixed) {
  const auto ends = run([&](Flock& flock) {
    std::vector<float> x = start_of(flock.rank());
    if (flock.rank() == 0) x.push_back(1);
    const std::vector<float> before = x;
    try {
      flock.neighbor_allreduce(x);
    } catch (const Mismatch&) {
      require(x == before, "changed");
      flock.barrier();
      return;
    }
    throw Error("a mismatch went through");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, LongPairTest, testing::ValuesIn(launches({2}, false)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, LongAverageTest, testing::ValuesIn(launches({2, 4}, false)), launch_name);

/// Needs processes: the last rank dies after it has posted three parts to each destination.
class LongAverageDeathTest : public LongAverageTest {};

TEST_P(LongAverageDeathTest, ArrivedPartsAreMixedAndTheOthersKept) {
  Faults faults;
  const Rank victim = GetParam().size - 1;
  faults.kills = {{victim, 3}};
  for (const bool reweight : {false, true}) {
    const auto ends = run(
        [&](Flock& flock) {
          flock.set_schedule("ring");
          if (reweight) flock.on_peer_failure(OnPeerFailure::reweight);
          const Exchange exchange = flock.schedule()->exchange(0, flock.rank());
          const std::vector<float> before = start_of(flock.rank());
          const std::vector<float> full = mixed(exchange, flock.rank());
          const std::vector<float> gap = mixed(exchange, flock.rank(), victim);
          std::vector<float> x = before;
          bool raised = false;
          try {
            flock.neighbor_allreduce(x);
          } catch (const PeerLost& lost) {
            require(lost.peer() == victim, lost.what());
            raised = true;
          }
          require(raised == !reweight, "raised or not");
          std::size_t mixed_elements = 0;
          for (std::size_t i = 0; i < kCount; ++i) {
            require(x[i] == full[i] || x[i] == (reweight ? gap[i] : before[i]), "neither old nor an average");
            if (x[i] == full[i]) ++mixed_elements;
          }
          require(mixed_elements < kCount, "nothing was missing");
        },
        faults);
    for (Rank rank = 0; rank < victim; ++rank)
      EXPECT_TRUE(ends[static_cast<std::size_t>(rank)].ok) << ends[static_cast<std::size_t>(rank)].message;
    EXPECT_EQ(ends.back().signal, SIGKILL);
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, LongAverageDeathTest, testing::ValuesIn(launches({2, 3}, true)),
                         launch_name);

}  // namespace
}  // namespace starling::flock

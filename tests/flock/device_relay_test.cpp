// Tests relays on device memory (starling/flock/relay_sum.h) with a FakeDevice: results and checkpoints have
// the same bits as with host memory.
#include <csignal>
#include <unistd.h>

#include "flock/reference.h"
#include "kernel/device_block.h"
#include "starling/flock/relay.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

bool same_memory(const Relay::Memory& a, const Relay::Memory& b) {
  const auto same = [](const Relay::Memory::Message& one, const Relay::Memory::Message& other) {
    return one.tree == other.tree && one.neighbor == other.neighbor && one.blocks == other.blocks &&
           one.sum == other.sum;
  };
  return std::equal(a.messages.begin(), a.messages.end(), b.messages.begin(), b.messages.end(), same) &&
         a.reference == b.reference && a.filled == b.filled;
}

class DeviceRelayTest : public FlockTest {};

template <typename E>
void relay_on_both(Flock& flock, const std::string& trees, const RelayOptions& options) {
  constexpr std::size_t kCount = 307;
  constexpr std::uint64_t kSteps = 8;
  const std::string what =
      fmt::format("{}, missing {}, overlap {}", trees, static_cast<int>(options.missing), options.overlap);
  std::vector<Relay> host = {flock.relay(trees, "host", options)};
  std::vector<Relay> device = {flock.relay(trees, "device", options)};
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step == 3) {  // as if resumed from a checkpoint
      const Relay::Memory expected = host[0].memory(), found = device[0].memory();
      require(same_memory(found, expected), what + ": another checkpoint than the host's");
      host = {flock.relay(trees, "host again", options)};
      device = {flock.relay(trees, "device again", options)};
      host[0].remember(found);
      device[0].remember(expected);
    }
    auto expected = start_block<E>(flock.rank(), kCount, step);
    const DeviceBlock<E> x(expected), out(kCount);
    if (step == 0 && options.missing == Missing::reference && flock.rank() == 0) {
      auto reference = start_block<E>(9, kCount);
      host[0].set_reference({dtype_of<E>, reference.data(), kCount});
      device[0].set_reference(DeviceBlock<E>(reference).buffer());
    }
    host[0].average(expected);
    device[0].start({x.buffer(), step % 2 == 0 ? x.buffer() : out.buffer()}).wait();
    require(same_bits((step % 2 == 0 ? x : out).values(), expected),
            fmt::format("{}, step {}: not the host's bits", what, step));
    require(host[0].contributors() == device[0].contributors(), what + ": contributors");
  }
}

TEST_P(DeviceRelayTest, EveryTreeAndRuleForWhatIsMissing) {
  run([](Flock& flock) {
    for (const std::string trees : {"chain", "star", "binary-tree", "double-binary-trees"})
      for (const Missing missing : {Missing::counts, Missing::reference, Missing::own, Missing::zero})
        for (const bool overlap : {false, true})
          relay_on_both<float>(flock, trees, {.missing = missing, .overlap = overlap});
    for (const Missing missing : {Missing::counts, Missing::reference})
      relay_on_both<float>(flock, "double-binary-trees", {.missing = missing, .contiguous = true});
    relay_on_both<Half>(flock, "double-binary-trees", {});
    relay_on_both<double>(flock, "chain", {});
    relay_on_both<BFloat16>(flock, "chain", {});
  });
}

TEST_P(DeviceRelayTest, ARelaysBlocksLieInOneKindOfMemory) {
  run([](Flock& flock) {
    std::vector<float> x(8);
    const DeviceBlock<float> y(8);
    Relay relay = flock.relay("chain", "both");
    relay.start({y.buffer(), y.buffer()}).wait();
    const std::string text = message_of<InvalidArgument>([&] { relay.average(x); });
    require(text == "both: the relay's blocks are in CUDA memory, and this one in host memory", text);
  });
}

TEST_P(DeviceRelayTest, DifferentKindsOfMemoryAreAMismatch) {
  if (GetParam().size != 2) return;
  run([](Flock& flock) {
    std::vector<float> x(8);
    const DeviceBlock<float> y(8);
    Relay relay = flock.relay("chain");
    const Buffer mine = flock.rank() == 0 ? Buffer(DType::float32, x.data(), 8) : y.buffer();
    const std::string text = message_of<Mismatch>([&] { relay.start({mine, mine}).wait(); });
    require(text.find("8 x float32 in host memory") != std::string::npos &&
                text.find("8 x float32 in CUDA memory") != std::string::npos,
            text);
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceRelayTest, testing::ValuesIn(device_launches({1, 2, 3, 4})),
                         launch_name);

// Rank 1 of a chain dies after it has sent its headers and before their payloads are complete. If its
// neighbors do not continue without it, they get NaN, and PeerLost in the next step.
void lose_a_relay_payload(OnPeerFailure policy, std::chrono::nanoseconds patience, bool raises) {
  const auto ends = device_launchers()[1].run(4, [&](const std::shared_ptr<Fabric>& fabric) {
    static kernel::Flag gate = 0;
    Flock flock(fabric);
    flock.set_timeout(20s);
    flock.on_peer_failure(policy);
    Relay relay = flock.relay("chain", "relay", {.patience = patience});
    const auto step = [&] {
      const DeviceBlock<float> x(std::vector<float>(100, static_cast<float>(flock.rank())));
      relay.start({x.buffer(), x.buffer()}).wait();
      return x.values();
    };
    step();
    step();
    std::vector<Rank> word(1);
    if (flock.rank() == 1) {
      kernel::device().register_flags(&gate, sizeof(gate));
      const DeviceBlock<float> x(100);
      kernel::device().synchronize();
      kernel::device().wait(gate, 1);
      const Pending last = relay.start({x.buffer(), x.buffer()});
      usleep(30'000);
      kill(getpid(), SIGKILL);
    }
    if (raises && flock.rank() != 3) {  // its neighbors
      const std::string text = message_of<PeerLost>([&] {
        while (std::isnan(step()[0])) {
        }
      });
      require(text.find("rank 1 is lost") != std::string::npos, text);
      return;
    }
    std::vector<float> x;
    for (int k = 0; k < 20; ++k) {
      x = step();
      if (raises || patience != std::chrono::nanoseconds::max()) return;
    }
    require(flock.view().members.size() == 3, "the view");
    for (const float one : x) require(std::abs(one - 5.0F / 3) < 1e-5F, "not the survivors' mean");
  });
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(rank == 1 ? ends[rank].signal == SIGKILL : ends[rank].ok)
        << rank << ": " << ends[rank].message;
}

TEST(DeviceRelayDeathTest, ALostPayloadIsALostMessage) {
  lose_a_relay_payload(OnPeerFailure::reweight, std::chrono::nanoseconds::max(), false);
  lose_a_relay_payload(OnPeerFailure::raise, std::chrono::nanoseconds::max(), true);
  lose_a_relay_payload(OnPeerFailure::raise, 5ms, false);
}

}  // namespace
}  // namespace starling::flock

// Tests operations of starling/flock when the device of a rank fails for good (a kernel that crashes): that
// rank gets the device's error, and the others are told why it is lost.
#include <cstdlib>
#include <thread>

#include "flock/reference.h"
#include "kernel/device_block.h"
#include "kernel/fake_device.h"
#include "starling/flock/relay.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

constexpr Rank kRanks = 3;
constexpr Rank kFailed = 1;
constexpr const char* kWhy = "an illegal memory access was encountered";

void crash_device() {
  dynamic_cast<kernel::FakeDevice&>(kernel::device()).crash(kWhy);
}

/// Makes calls of one kind on x.
using Calls = std::function<std::function<void()>(Flock& flock, const DeviceBlock<float>& x, Room room)>;

struct Called {
  const char* name;
  std::size_t count;
  Calls calls;
};

std::vector<Called> all_calls() {
  const auto sum = [](const std::string& algorithm) {
    return [algorithm](Flock& flock, const DeviceBlock<float>& x, const Room&) {
      flock.set_allreduce(algorithm);
      return [&] {
        ByteOperations(flock).allreduce({{x.buffer(), x.buffer()}}, Reduction::average, "mean").wait();
      };
    };
  };
  const auto average = [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
    return [&] {
      ByteOperations(flock).neighbor_allreduce({{x.buffer(), x.buffer()}}, {}, "average").wait();
    };
  };
  return {{"an average", 100, average},
          {"a long average", 300'000, average},
          {"a short sum", 100, sum("direct")},
          {"a sum in slices", 20'000, sum("direct")},
          {"a sum by rounds", 100, sum("doubling")},
          {"reduce_scatter", 1003,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             return [&, room] {
               ByteOperations(flock).reduce_scatter(x.buffer(), room, Reduction::sum, "part").wait();
             };
           }},
          {"broadcast", 100,
           [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             return [&] {
               ByteOperations(flock).broadcast({{x.buffer(), x.buffer()}}, kFailed, "root").wait();
             };
           }},
          {"allgather", 100,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             return [&, room] { ByteOperations(flock).allgather(x.buffer(), room, "all").wait(); };
           }},
          {"neighbor_allgather", 100,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             return [&, room] { ByteOperations(flock).neighbor_allgather(x.buffer(), room, "near").wait(); };
           }},
          // The failed rank waits for a rank that waits for it, so neither of them calls its device.
          {"send and recv", 100,
           [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             return [&] {
               const ByteOperations operations(flock);
               if (flock.rank() == kFailed) operations.send(x.buffer(), 0, "message");
               if (flock.rank() <= kFailed)
                 operations.recv(x.buffer(), kFailed - flock.rank(), "message").wait();
               if (flock.rank() == 0) operations.send(x.buffer(), kFailed, "message");
             };
           }},
          {"a window", 100,
           [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             return [window = flock.create_window(x.buffer(), "x")]() mutable {
               window.put();
               window.get();
               window.update();
             };
           }},
          {"a relay", 100, [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             return [&, relay = flock.relay("chain")]() mutable {
               relay.start({x.buffer(), x.buffer(), 0}).wait();
             };
           }}};
}

/// Makes the calls on all ranks until the device of one of them has failed; returns the error of this rank.
std::string error_of(Flock& flock, const std::function<void()>& call) {
  call();
  flock.barrier();
  if (flock.rank() == kFailed) crash_device();
  // The hosts run ahead of the devices.
  const auto end = std::chrono::steady_clock::now() + 20s;
  try {
    while (std::chrono::steady_clock::now() < end) {
      call();
      flock.barrier();
    }
  } catch (const PeerLost& lost) {
    require(flock.rank() != kFailed && lost.peer() == kFailed, lost.what());
    return lost.what();
  } catch (const Error& error) {
    require(flock.rank() == kFailed, error.what());
    return error.what();
  }
  throw Error("nobody noticed");
}

void require_why(const std::string& text) {
  require(text.find(kWhy) != std::string::npos, "this does not say why: " + text);
}

class DeviceFailureTest : public FlockTest {
 protected:
  void SetUp() override {
    if (std::getenv("STARLING_TEST_DEVICE") != nullptr)
      GTEST_SKIP() << "a GPU would not recover for the next test";
  }
};

TEST_P(DeviceFailureTest, TheRankGetsTheErrorAndTheOthersAreTold) {
  for (const Called& called : all_calls()) {
    SCOPED_TRACE(called.name);
    run([&](Flock& flock) {
      flock.set_timeout(20s);
      flock.set_schedule("complete");
      const DeviceBlock<float> x(called.count);
      kernel::OwnedBuffer memory;
      const Room room = [&](std::size_t count) {
        memory = kernel::OwnedBuffer(DType::float32, count, MemoryKind::cuda);
        return memory.buffer();
      };
      require_why(error_of(flock, called.calls(flock, x, room)));
      // It stays away, and the others still know why.
      require_why(message_of<Error>([&] {
        for (int k = 0; k < 2; ++k) flock.barrier();  // its last message may have been for the first
      }));
    });
  }
}

TEST_P(DeviceFailureTest, SurvivorsContinueWithoutTheRank) {
  run([](Flock& flock) {
    flock.set_timeout(20s);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule("complete");
    const ByteOperations operations(flock);
    std::vector<float> found;
    const auto next = [&] {
      const DeviceBlock<float> x(std::vector<float>(1000, static_cast<float>(1 << flock.rank())));
      operations.neighbor_allreduce({{x.buffer(), x.buffer()}}, {}, "average").wait();
      const DeviceBlock<float> y(std::vector<float>(1000, static_cast<float>(1 << flock.rank())));
      operations.allreduce({{y.buffer(), y.buffer()}}, Reduction::sum, "sum").wait();
      found = y.values();
    };
    next();
    require(found[0] == 1 + 2 + 4, "the first sum");
    if (flock.rank() == kFailed) {
      crash_device();
      require_why(message_of<Error>([&] {
        for (int k = 0; k < 100; ++k) next();
      }));
      return;
    }
    for (int k = 0; k < 100 && found[0] != 1 + 4; ++k) next();
    require(found == std::vector<float>(1000, 1 + 4), "the survivors' sum");
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceFailureTest, testing::ValuesIn(device_launches({kRanks})),
                         launch_name);

}  // namespace
}  // namespace starling::flock

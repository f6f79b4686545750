// Covers windows on device memory (starling/flock/window.h, cell.h; fabric/device_pool.h) with a FakeDevice:
// the same bits as on host memory, and whole values whatever the others do.
#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "flock/reference.h"
#include "kernel/device_block.h"
#include "kernel/fake_device.h"
#include "kernel/peer_mappings.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/local/local.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;
using kernel::MemoryBlock;

/// The same window in both kinds of memory, of two flocks of the same ranks.
template <typename E>
struct TwoWindows {
  TwoWindows(Flock& flock, const std::vector<E>& start, const WindowOptions& options)
      : host(start, MemoryKind::host),
        device(start, MemoryKind::cuda),
        on_host(flock.create_window(host.buffer(), "on the host", options)),
        on_device(flock.create_window(device.buffer(), "on the device", options)) {}

  void require_same(const std::string& when) const {
    require(same_bits(device.values(), host.values()), when + ": not the host's bits");
    require(on_device.p() == on_host.p(), when + ": not the host's p");
    for (const Rank source : on_host.sources())
      require(on_device.version(source) == on_host.version(source), when + ": not the host's version");
  }

  MemoryBlock<E> host, device;
  Window on_host, on_device;
};

template <typename E>
double random_weight(std::mt19937& random) {
  if constexpr (is_floating_element<E>) return 0.125 * static_cast<double>(random() % 9);
  return static_cast<double>(random() % 2);
}

// All ranks take the same kind of call in every round, with weights of their own.
template <typename E>
void call_at_random(Flock& flock, std::size_t count, int rounds, const WindowOptions& options) {
  std::mt19937 common(static_cast<unsigned>(count) + 5);
  std::mt19937 own(static_cast<unsigned>(flock.rank()) + 11);
  TwoWindows<E> two(flock, start_block<E>(flock.rank(), count), options);
  const auto weights_for = [&](const std::vector<Rank>& ranks) {
    Window::Weights weights;
    for (const Rank rank : ranks)
      if (own() % 4 != 0) weights[rank] = random_weight<E>(own);
    return weights;
  };
  two.require_same("at first");
  flock.barrier();
  for (int round = 0; round < rounds; ++round) {
    const auto what = static_cast<unsigned>(common() % 10);
    const Window::Weights to = weights_for(two.on_host.destinations());
    const Window::Weights from = weights_for(two.on_host.sources());
    const double keep = random_weight<E>(own);
    const bool reset = common() % 2 == 0;
    const auto more = start_block<E>(flock.rank(), count, static_cast<std::uint64_t>(round) + 1);
    const auto call = [&](Window& window, const MemoryBlock<E>& tensor) {
      const MemoryKind memory = tensor.buffer().memory;
      window.set_progress(round);
      if (what == 0) window.put(to, is_floating_element<E> ? keep : 1);
      if (what == 1) window.accumulate(to, is_floating_element<E> ? keep : 1);
      if (what == 2) window.put_value(MemoryBlock<E>(more, memory).buffer(), to);
      if (what == 3) window.accumulate_value(MemoryBlock<E>(more, memory).buffer(), to);
      if (what == 4) window.get(from);
      if (what == 5) window.update(keep, from, reset);
      if (what == 6) window.update_then_collect();
      if (what == 7) window.clear();
      if (what == 8) {
        tensor.set(more);
        window.publish();
      }
      if (what != 9) return std::vector<E>();
      const MemoryBlock<E> out(count, memory);
      window.update_into(out.buffer(), keep, from, reset);
      return out.values();
    };
    const auto on_host = call(two.on_host, two.host);
    const auto on_device = call(two.on_device, two.device);
    require(same_bits(on_device, on_host), fmt::format("round {}: update_into", round));
    flock.barrier();
    two.require_same(fmt::format("{} x {}, round {}, call {}", count, name(dtype_of<E>), round, what));
    flock.barrier();
  }
  require(two.on_device.staleness().mean() == two.on_host.staleness().mean(), "the age of what was used");
  two.on_device.free();
  two.on_host.free();
}

class DeviceWindowTest : public FlockTest {};

TEST_P(DeviceWindowTest, EveryCallHasTheBitsOfTheHost) {
  run([](Flock& flock) {
    flock.set_schedule("exponential");
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t count : {0U, 1U, 1003U})
        call_at_random<E>(flock, count, count == 1003 ? 12 : 3, {.zero = true});
    });
    call_at_random<float>(flock, 1003, 60, {.copies_p = 0});
    call_at_random<double>(flock, 300'001, 20, {});  // a piece of device memory for each value
  });
}

TEST_P(DeviceWindowTest, UpdatesTakeTheSchedulesWeights) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    TwoWindows<float> two(flock, start_block<float>(flock.rank(), 777), {});
    for (int round = 0; round < 5; ++round) {
      two.on_host.put();
      two.on_device.put();
      flock.barrier();
      two.on_host.update();
      two.on_device.update();
      two.require_same(fmt::format("round {}", round));
      flock.barrier();
    }
  });
}

// One rank after another: what two do at once has no order.
TEST_P(DeviceWindowTest, SharedValuesHaveTheBitsOfTheHost) {
  run([](Flock& flock) {
    constexpr std::size_t kCount = 501;
    flock.set_schedule("complete");
    TwoWindows<float> two(flock, start_block<float>(flock.rank(), kCount), {.shared = true});
    std::mt19937 random(static_cast<unsigned>(flock.rank()));
    const auto meet = [&](Window& window, MemoryKind memory, Rank other, std::uint64_t round) {
      const MemoryBlock<float> mine(kCount, memory), moved(kCount, memory), seen(kCount, memory);
      if (round % 3 == 1)
        window.store(MemoryBlock<float>(start_block<float>(other, kCount, round), memory).buffer());
      window.load(mine.buffer());
      window.average_with(other, mine.buffer(), 0.3, moved.buffer());
      window.add(moved.buffer());
      window.load(seen.buffer());
      return std::pair(moved.values(), seen.values());
    };
    for (std::uint64_t round = 0; round < 4; ++round)
      for (Rank turn = 0; turn < flock.size(); ++turn) {
        flock.barrier();
        if (turn != flock.rank()) continue;
        const auto other = static_cast<Rank>(random() % static_cast<unsigned>(flock.size()));
        const auto host = meet(two.on_host, MemoryKind::host, other, round);
        const auto device = meet(two.on_device, MemoryKind::cuda, other, round);
        require(same_bits(device.first, host.first) && same_bits(device.second, host.second),
                fmt::format("round {}", round));
      }
    flock.barrier();
  });
}

// What a call does is ordered with the work before and after it on the calling thread's stream.
TEST_P(DeviceWindowTest, CallsAreOrderedWithTheStream) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    const Arithmetic& arithmetic = kernel::arithmetic_in(MemoryKind::cuda);
    const DeviceBlock<double> x(std::vector<double>(5000, 1));
    Window window = flock.create_window(x.buffer(), "x", {.zero = true});
    for (int round = 0; round < 10; ++round) {
      arithmetic.scale(x.buffer(), 2);
      window.put();
      arithmetic.scale(x.buffer(), 0.5);  // after what was put
      flock.barrier();
      window.update_then_collect();
      arithmetic.scale(x.buffer(), 1.0 / (1 + 2 * static_cast<double>(window.sources().size())));
      const auto found = x.values();
      for (const double value : {found[0], found[4999]})
        require(std::abs(value - 1) < 1e-12, fmt::format("{} in round {}", value, round));
      x.set(std::vector<double>(5000, 1));
      flock.barrier();
    }
  });
}

TEST_P(DeviceWindowTest, ConcurrentDepositsLoseNothing) {
  run([](Flock& flock) {
    flock.set_schedule("exponential");
    const Rank n = flock.size();
    std::mt19937 random(static_cast<unsigned>(flock.rank()) + 7);
    const DeviceBlock<double> x(std::vector<double>(500, 1.0 + flock.rank()));
    Window window = flock.create_window(x.buffer(), "mass", {.zero = true, .readable = false});
    for (int round = 0; round < 100; ++round) {
      const auto destinations = window.destinations();
      if (!destinations.empty()) {
        const Rank to = destinations[random() % destinations.size()];
        window.accumulate(Window::Weights{{to, 0.25}}, 0.75);
      }
      if (random() % 3 == 0) window.update_then_collect();
    }
    flock.barrier();
    window.update_then_collect();
    const auto found = x.values();
    std::vector<double> total = {found[0], found[499], window.p()};
    require(found[0] == found[250], "torn");
    flock.allreduce(total);
    const double mass = n * (n + 1) / 2.0;
    require(std::abs(total[0] - mass) < 1e-9 && std::abs(total[1] - mass) < 1e-9,
            fmt::format("x: {}", total[0]));
    require(std::abs(total[2] - n) < 1e-9, fmt::format("p: {}", total[2]));
  });
}

TEST_P(DeviceWindowTest, ConcurrentPutsAreSeenWhole) {
  run([](Flock& flock) {
    constexpr std::size_t kCount = 20'000;
    flock.set_schedule("ring");
    const DeviceBlock<std::int64_t> x(kCount), seen(kCount);
    x.set(std::vector<std::int64_t>(kCount, flock.rank()));
    Window window = flock.create_window(x.buffer(), "whole");
    for (int round = 0; round < 30; ++round) {
      x.set(std::vector<std::int64_t>(kCount, round * 1000 + flock.rank()));
      window.put();
      for (const Rank source : window.sources()) {
        window.update_into(seen.buffer(), 0, {{source, 1}});
        const auto found = seen.values();
        require(std::count(found.begin(), found.end(), found[0]) == kCount, "torn");
        const std::int64_t who = found[0] % 1000;
        require(who == source || who == flock.rank(), "from somebody else");
      }
    }
  });
}

TEST_P(DeviceWindowTest, TensorsMustBeOfOneKind) {
  if (GetParam().size == 1) GTEST_SKIP() << "two tensors differ";
  run([](Flock& flock) {
    const bool odd = flock.rank() == flock.size() - 1;
    const MemoryBlock<float> mixed(3, odd ? MemoryKind::host : MemoryKind::cuda);
    const std::string kinds = message_of<Mismatch>([&] { flock.create_window(mixed.buffer(), "mixed"); });
    const std::string on_device = "3 x float32 in CUDA memory", on_host = "3 x float32 in host memory";
    require(kinds.find(on_device) != kinds.npos && kinds.find(on_host) != kinds.npos, kinds);
    const DeviceBlock<float> lengths(odd ? 4 : 3);
    const std::string counts =
        message_of<Mismatch>([&] { flock.create_window(lengths.buffer(), "lengths"); });
    require(counts.find("4 x float32 in CUDA memory") != counts.npos, counts);
    const DeviceBlock<float> x(3);
    std::vector<float> elsewhere(3);
    Window window = flock.create_window(x.buffer(), "x", {.shared = true});
    const std::string put = message_of<InvalidArgument>([&] { window.put_value(elsewhere); });
    require(put ==
                "x: put_value takes 3 x float32 in CUDA memory, as this window's tensor has, not 3 x float32 "
                "in host memory",
            put);
    flock.barrier();
  });
}

bool counts_mappings() {
  return std::getenv("STARLING_TEST_DEVICE") == nullptr;
}

auto open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_P(DeviceWindowTest, FreeingGivesDeviceMemoryBack) {
  if (!GetParam().launcher->processes || !counts_mappings()) GTEST_SKIP() << "counts what a process has";
  run([](Flock& flock) {
    flock.set_schedule("exponential");
    const auto bytes_free = [] { return kernel::device().devices()[0].bytes_free; };
    const std::size_t before = bytes_free();
    std::ptrdiff_t descriptors = 0;
    for (int round = 0; round < 4; ++round) {
      const std::size_t count = round % 2 == 0 ? 300'000 : 70;
      const DeviceBlock<float> x(count), moved(count);
      Window window = flock.create_window(x.buffer(), "x", {.shared = true});
      for (int k = 0; k < 3; ++k) {
        window.accumulate();
        window.update();
        window.get();
        for (Rank other = 0; other < flock.size(); ++other)
          window.average_with(other, x.buffer(), 0.5, moved.buffer());
      }
      require(bytes_free() < before, "values lie in device memory");
      require(flock.size() == 1 || kernel::peer_mappings() > 0, "others' values are mapped");
      window.free();
      require(bytes_free() == before, fmt::format("{} bytes are kept", before - bytes_free()));
      require(kernel::peer_mappings() == 0, fmt::format("{} mappings are kept", kernel::peer_mappings()));
      flock.barrier();
      if (round == 0) descriptors = open_descriptors();
    }
    require(open_descriptors() == descriptors,
            fmt::format("{} descriptors are open, {} were", open_descriptors(), descriptors));
    flock.barrier();  // those of ranks that leave are closed
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceWindowTest, testing::ValuesIn(device_launches({1, 2, 4})),
                         launch_name);

/// Two ranks in threads whose FakeDevice has options; `body` must not throw.
void on_two_ranks(const kernel::FakeDeviceOptions& options, const FlockBody& body) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>(options));
  static int jobs = 0;
  const std::string job = fmt::format("device-windows-{}-{}", getpid(), jobs++);
  std::vector<std::thread> ranks;
  std::vector<std::string> errors(2);
  for (const auto& fabric : local_threads(2))
    ranks.emplace_back([&, fabric] {
      try {
        Flock flock(with_device_messages(fabric, job));
        flock.set_timeout(20s);
        body(flock);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(fabric->rank())] = error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  kernel::set_device(nullptr);
}

// Every rank says who has too little, and nothing stays.
TEST(DeviceWindowMemoryTest, WhereItIsTooLittleAllRanksAreTold) {
  on_two_ranks({.memory = 5'000'000}, [](Flock& flock) {
    std::vector<float> elements(900'000);
    const Buffer x(DType::float32, elements.data(), elements.size(), MemoryKind::cuda, nullptr);
    const std::string text = message_of<Error>([&] { flock.create_window(x, "x"); });
    require(text.find("could not make its part of the window") != text.npos &&
                text.find("3600384 bytes are needed") != text.npos && text.find("are free") != text.npos,
            text);
    flock.barrier();
    require(kernel::device().devices()[0].bytes_free == 5'000'000, "memory is kept");
    Window window = flock.create_window(x.part(0, 100), "x");  // the name is free
    window.put();
    window.free();
  });
}

// Memory is allocated when a value needs it: a call without it throws and changes nothing.
TEST(DeviceWindowMemoryTest, ACallThatFindsTooLittleChangesNothing) {
  on_two_ranks({.memory = 9'000'000}, [](Flock& flock) {
    flock.set_schedule("ring");
    const DeviceBlock<float> x(std::vector<float>(1'000'000, 1));
    Window window = flock.create_window(x.buffer(), "x", {.zero = true, .readable = false});
    if (flock.rank() == 0) {
      window.accumulate();
      const std::string text = message_of<Error>([&] { window.accumulate(); });
      require(text.find("bytes are needed") != text.npos, text);
    }
    flock.barrier();
    window.update_then_collect();
    require(x.values()[7] == (flock.rank() == 1 ? 2 : 1) && window.p() == (flock.rank() == 1 ? 2 : 1),
            "what was accumulated");
    flock.barrier();
  });
}

TEST(DeviceWindowMemoryTest, DevicesThatCannotReadEachOtherAreNamedAtOnce) {
  on_two_ranks({.peer_access = false}, [](Flock& flock) {
    const DeviceBlock<float> x(100);
    const std::string text = message_of<Error>([&] { flock.create_window(x.buffer(), "x"); });
    require(text.find("x: rank 0 could not make its part of the window") != text.npos &&
                text.find("there is no peer access") != text.npos,
            text);
  });
}

TEST(DeviceWindowMemoryTest, EachRankUsesItsOwnDevice) {
  on_two_ranks({.seed = 5, .devices = 2}, [](Flock& flock) {
    const kernel::DeviceScope scope({flock.rank(), nullptr});
    flock.set_schedule("ring");
    const DeviceBlock<float> x(std::vector<float>(1000, 1.0F + static_cast<float>(flock.rank())));
    Window window = flock.create_window(x.buffer(), "x", {.zero = true});
    window.accumulate();
    flock.barrier();
    window.update_then_collect();
    require(x.values() == std::vector<float>(1000, 3), "the sum");
    flock.barrier();
  });
}

TEST(DeviceWindowMemoryTest, AFlockWithoutDeviceMemorySaysWhatItNeeds) {
  for (const auto& end : launchers()[0].run(2, [](const std::shared_ptr<Fabric>& fabric) {
         Flock flock(fabric);
         std::vector<float> elements(3);
         const Buffer x(DType::float32, elements.data(), 3, MemoryKind::cuda, nullptr);
         const std::string text = message_of<InvalidArgument>([&] { flock.create_window(x, "x"); });
         require(text.find("x: this flock has no windows in CUDA memory") != text.npos &&
                     text.find("copy to the host first") != text.npos,
                 text);
       }))
    EXPECT_TRUE(end.ok) << end.message;
}

}  // namespace
}  // namespace starling::flock

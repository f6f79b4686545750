// Covers neighbor averages on device memory (starling/flock/neighbor_average.h, memory_check.h) with a
// FakeDevice: the same bits as on host memory.
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/reference.h"
#include "kernel/device_block.h"
#include "kernel/fake_device.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/device_messages.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/topology/registry.h"
#include "starling/topology/settable.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

/// The same flock twice, with schedules at the same step: one for blocks in host memory, one for device
/// memory.
struct BothKinds {
  explicit BothKinds(Flock& flock) : host(flock.split(0)), device(flock.split(0)) {}
  void set_schedule(const std::string& spec) {
    host.set_schedule(spec);
    device.set_schedule(spec);
  }

  Flock host, device;
};

using StartAverage = std::function<Pending(Flock& flock, Pieces pieces)>;

template <typename E>
Buffer host_buffer(std::vector<E>& x) {
  return {dtype_of<E>, x.data(), x.size()};
}

/// Averages in place and out of place.
template <typename E>
void require_same_as_host(BothKinds& both, const std::vector<E>& start, const StartAverage& average,
                          const std::string& what) {
  for (const bool in_place : {true, false}) {
    auto x = start;
    std::vector<E> y(start.size());
    average(both.host, {{host_buffer(x), in_place ? host_buffer(x) : host_buffer(y)}}).wait();
    const DeviceBlock<E> on_device(start), out(start.size());
    average(both.device, {{on_device.buffer(), in_place ? on_device.buffer() : out.buffer()}}).wait();
    require(same_bits((in_place ? on_device : out).values(), in_place ? x : y),
            what + ": not the host's bits");
    if (!in_place) require(same_bits(on_device.values(), start), what + ": the input was changed");
  }
}

Pending scheduled_average(Flock& flock, Pieces pieces) {
  return ByteOperations(flock).neighbor_allreduce(std::move(pieces), {}, "average");
}

class DeviceAverageTest : public FlockTest {};

TEST_P(DeviceAverageTest, EveryScheduleTypeAndSize) {
  run([](Flock& flock) {
    std::vector<std::string> specs = {"ring",     "exponential",        "one-peer-exponential",
                                      "star",     "base(k=2)",          "od-equidyn(seed=2)",
                                      "complete", "periodic(ring,h=2)", "periodic(star,h=3)"};
    if (flock.size() % 2 == 0) specs.emplace_back("hierarchical(one-peer-exponential,local=2)");
    for (const std::string& spec : specs) {
      BothKinds both(flock);
      both.set_schedule(spec);
      std::uint64_t round = 0;
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t count : {0U, 1U, 1003U})
          require_same_as_host(both, start_block<E>(flock.rank(), count, round++), scheduled_average, spec);
      });
    }
  });
}

TEST_P(DeviceAverageTest, AveragesThatTravelInPartsOnTheHost) {
  if (GetParam().size > 3) GTEST_SKIP() << "takes too much memory";
  run([](Flock& flock) {
    BothKinds both(flock);
    both.set_schedule("ring");
    require_same_as_host(both, start_block<float>(flock.rank(), 2'300'017), scheduled_average,
                         "a long block");
  });
}

TEST_P(DeviceAverageTest, TheCallersOwnWeightsAndScales) {
  run([](Flock& flock) {
    BothKinds both(flock);
    const Rank n = flock.size();
    for (std::uint64_t round = 0; round < 4; ++round) {
      Weighted weights{0.375, std::map<Rank, double>(), std::map<Rank, double>()};
      for (Rank hop = 1; hop <= std::min<Rank>(2, n - 1); ++hop) {
        (*weights.sources)[(flock.rank() + n - hop) % n] = 0.25 * hop;
        (*weights.destinations)[(flock.rank() + hop) % n] = round < 2 ? 1 : 0.5 * hop;
      }
      if (round == 1) weights.sources.reset();
      const auto average = [&](Flock& part, Pieces pieces) {
        return ByteOperations(part).neighbor_allreduce(std::move(pieces), {}, weights, "weighted");
      };
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        require_same_as_host(both, start_block<E>(flock.rank(), 501, round), average, "weights");
      });
    }
  });
}

TEST_P(DeviceAverageTest, PairsGossip) {
  run([](Flock& flock) {
    const Rank peer = flock.rank() ^ 1;
    BothKinds both(flock);
    if (peer >= flock.size()) return;
    for (const double self_weight : {0.5, 0.25, 0.0, 1.0})
      require_same_as_host(
          both, start_block<float>(flock.rank(), 301),
          [&](Flock& part, Pieces pieces) {
            return ByteOperations(part).pair_gossip(std::move(pieces), peer, self_weight, "gossip");
          },
          "gossip");
  });
}

TEST_P(DeviceAverageTest, GroupsOfTensorsOfMixedTypes) {
  run([](Flock& flock) {
    for (const std::string spec : {"exponential", "complete", "periodic(ring,h=2)"}) {
      BothKinds both(flock);
      both.set_schedule(spec);
      for (std::uint64_t round = 0; round < 3; ++round) {
        // Odd lengths of short types before long ones: the message must align them.
        auto halves = start_block<Half>(flock.rank(), 3, round);
        auto doubles = start_block<double>(flock.rank(), 17, round);
        std::vector<float> none;
        auto floats = start_block<float>(flock.rank(), 1001, round);
        const DeviceBlock<Half> device_halves(halves);
        const DeviceBlock<double> device_doubles(doubles);
        const DeviceBlock<float> device_none(0), device_floats(floats);
        std::vector<Buffer> on_host = {host_buffer(halves), host_buffer(doubles), host_buffer(none),
                                       host_buffer(floats)};
        std::vector<Buffer> on_device = {device_halves.buffer(), device_doubles.buffer(),
                                         device_none.buffer(), device_floats.buffer()};
        both.host.neighbor_allreduce_group(on_host);
        both.device.neighbor_allreduce_group(on_device);
        require(same_bits(device_halves.values(), halves) && same_bits(device_doubles.values(), doubles) &&
                    same_bits(device_floats.values(), floats),
                spec + ": not the host's bits");
      }
    }
  });
}

// The terms of an exchange; and blocks in outgoing memory, which are sent without a copy.
TEST_P(DeviceAverageTest, ExchangesGiveAccessToTheNeighborsBlocks) {
  run([](Flock& flock) {
    for (const std::string spec : {"ring", "one-peer-exponential", "complete", "periodic(ring,h=2)"}) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger on_host(flock, schedule, "host " + spec);
      NeighborExchanger on_device(flock, schedule, "device " + spec);
      for (std::uint64_t round = 0; round < 6; ++round) {
        auto start = start_block<float>(flock.rank(), 703, round);
        std::vector<float> expected(703);
        {
          PendingExchange exchange = on_host.start({{host_buffer(start), {}}});
          exchange.wait();
          combine(host_buffer(expected), exchange.terms());
        }
        const DeviceBlock<float> x(start), result(703);
        PendingExchange exchange;
        if (round % 2 == 0) {
          exchange = on_device.start({{x.buffer(), {}}});
        } else {
          Outgoing memory = flock.outgoing_bytes(x.buffer().bytes(), MemoryKind::cuda);
          const Buffer there = memory.buffer(DType::float32, 703);
          kernel::arithmetic_in(MemoryKind::cuda).copy(there, x.buffer());
          exchange = on_device.start({{there, {}}}, std::move(memory));
        }
        exchange.wait();
        kernel::arithmetic_in(MemoryKind::cuda).combine(result.buffer(), exchange.terms());
        exchange = {};
        require(same_bits(result.values(), expected), spec + ": not the host's bits");
      }
    }
  });
}

TEST_P(DeviceAverageTest, TwoBlockSchedules) {
  run([](Flock& flock) {
    for (const std::string spec : {"ceca", "ceca(k=2)"}) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger on_host(flock, schedule, "host " + spec);
      NeighborExchanger on_device(flock, schedule, "device " + spec);
      auto a = start_block<double>(flock.rank(), 61), b = start_block<double>(flock.rank(), 61, 1);
      const DeviceBlock<double> device_a(a), device_b(b), next(61);
      for (Step k = 0; k < 2 * schedule->period(); ++k) {
        {
          PendingExchange exchange = on_host.start(pieces_of(std::vector{host_buffer(a), host_buffer(b)}));
          exchange.wait();
          std::vector<double> next_a(61), next_b(61);
          combine(host_buffer(next_a), exchange.terms(0));
          combine(host_buffer(next_b), exchange.terms(1));
          a = next_a;
          b = next_b;
        }
        PendingExchange exchange =
            on_device.start(pieces_of(std::vector{device_a.buffer(), device_b.buffer()}));
        exchange.wait();
        const Arithmetic& arithmetic = kernel::arithmetic_in(MemoryKind::cuda);
        arithmetic.combine(next.buffer(), exchange.terms(0));
        arithmetic.combine(device_b.buffer(), exchange.terms(1));
        arithmetic.copy(device_a.buffer(), next.buffer());
        exchange = {};
        require(same_bits(device_a.values(), a) && same_bits(device_b.values(), b), spec);
      }
    }
  });
}

// Host and device blocks, first under different names in a different order on every rank, then under one
// name.
TEST_P(DeviceAverageTest, AveragesOfBothKindsInterleave) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    constexpr std::size_t kNames = 12;
    std::vector<std::vector<float>> host(kNames), expected(kNames);
    std::vector<DeviceBlock<float>> device;
    for (std::size_t k = 0; k < kNames; ++k) {
      expected[k] = host[k] = start_block<float>(flock.rank(), 400, k);
      device.emplace_back(host[k]);
      flock.neighbor_allreduce(expected[k], Name(fmt::format("expected {}", k)));
    }
    std::vector<Pending> pending(kNames);
    const auto start = [&](std::size_t k, const std::string& name) {
      const Buffer x = k % 2 == 0 ? device[k].buffer() : host_buffer(host[k]);
      pending[k] = ByteOperations(flock).neighbor_allreduce({{x, x}}, {}, Name(name));
    };
    for (const bool one_name : {false, true}) {
      for (std::size_t k = 0; k < kNames; ++k) {
        const std::size_t turn = one_name ? k : (k + 5 * static_cast<std::size_t>(flock.rank())) % kNames;
        start(turn, one_name ? "one name" : fmt::format("name {}", turn));
      }
      for (std::size_t k = 0; k < kNames; ++k) {
        pending[k].wait();
        const auto found = k % 2 == 0 ? device[k].values() : host[k];
        require(same_bits(found, expected[k]), fmt::format("average {}", k));
        flock.neighbor_allreduce(expected[k], "again");
      }
    }
  });
}

// Another thread finishes a two-phase operation: its work is still enqueued on the stream on which the
// operation was started.
TEST_P(DeviceAverageTest, AnOperationKeepsItsStream) {
  run([](Flock& flock) {
    flock.set_schedule("complete");
    for (std::uint64_t round = 0; round < 20; ++round) {
      auto expected = start_block<float>(flock.rank(), 900, round);
      const DeviceBlock<float> x(expected);
      flock.neighbor_allreduce(expected, "host");
      Pending pending = ByteOperations(flock).neighbor_allreduce({{x.buffer(), x.buffer()}}, {}, "device");
      std::thread([&] { pending.wait(); }).join();
      require(same_bits(x.values(), expected), "not in the order of the stream");
    }
  });
}

TEST_P(DeviceAverageTest, SlotsAreReused) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    flock.set_schedule("ring");
    const DeviceBlock<float> large(start_block<float>(flock.rank(), 500'000));
    std::vector<DeviceBlock<float>> small;
    for (std::uint64_t k = 0; k < 3; ++k) small.emplace_back(start_block<float>(flock.rank(), 1000, k));
    const auto average = [&](const DeviceBlock<float>& x, const std::string& name) {
      ByteOperations(flock).neighbor_allreduce({{x.buffer(), x.buffer()}}, {}, Name(name)).wait();
    };
    for (int step = 0; step < 60; ++step) {
      average(large, "large");
      for (std::size_t k = 0; k < 3; ++k) average(small[k], fmt::format("small {}", k));
    }
    const auto usage = fabric->device_messages()->usage();
    // Two slots for the large block, of this step and the last one; the three small blocks share memory.
    require(usage.slots <= 2 + 4, fmt::format("{} slots", usage.slots));
    require(usage.pieces <= 3, fmt::format("{} pieces", usage.pieces));
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

// The missing weight of a lost message goes where each piece asks for.
TEST_P(DeviceAverageTest, LostMessagesLeaveTheirWeightWhereItBelongs) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(make_faulty(fabric, {.seed = 5, .lose = 0.3}));
    flock.set_timeout(20s);
    for (const std::string spec : {"ring", "complete"}) {
      NeighborExchanger rounds(flock, make_schedule(spec, flock.size()), "lossy " + spec);
      for (int step = 0; step < 20; ++step) {
        const double own = 1.0 + flock.rank();
        const DeviceBlock<double> average(std::vector<double>{1}), sum(std::vector<double>{own}),
            pair(std::vector<double>{own});
        Pieces pieces = pieces_of(std::vector{average.buffer(), sum.buffer(), pair.buffer()});
        pieces[1].if_lost = IfLost::returned;
        pieces[2].if_lost = IfLost::mutual;
        {
          PendingExchange exchange = rounds.start(pieces);
          exchange.wait();
          for (std::size_t i = 0; i < 3; ++i)
            kernel::arithmetic_in(MemoryKind::cuda).combine(pieces[i].out, exchange.terms(i));
        }
        std::vector<double> after = {sum.values()[0], pair.values()[0]};
        require(std::abs(average.values()[0] - 1) < 1e-12, "not an average");
        flock.allreduce(after);
        const double all = flock.size() * (flock.size() + 1) / 2.0;
        require(std::abs(after[0] - all) < 1e-9, "the sum has changed");
        require(std::abs(after[1] - all) < 1e-9, "a pair was left out at one end");
      }
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceAverageTest, testing::ValuesIn(device_launches({1, 2, 3, 4})),
                         launch_name);

class DeviceMachinesTest : public FlockTest {};

TEST_P(DeviceMachinesTest, HierarchicalAverages) {
  run([](Flock& flock) {
    setenv("STARLING_RANKS_PER_MACHINE", "2", 1);
    BothKinds both(flock);
    Weighted machines{0.25, std::map<Rank, double>{{1 - flock.machine_rank(), 0.75}},
                      std::map<Rank, double>{{1 - flock.machine_rank(), 1.0 + flock.machine_rank()}}};
    for (std::uint64_t round = 0; round < 3; ++round) {
      const auto start = start_block<float>(flock.rank(), 777, round);
      require_same_as_host(
          both, start,
          [](Flock& part, Pieces pieces) {
            return ByteOperations(part).hierarchical_neighbor_allreduce(std::move(pieces), "machines");
          },
          "hierarchical");
      require_same_as_host(
          both, start,
          [&](Flock& part, Pieces pieces) {
            return ByteOperations(part).hierarchical_neighbor_allreduce(std::move(pieces), machines, "own");
          },
          "hierarchical with weights");
    }
    unsetenv("STARLING_RANKS_PER_MACHINE");
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceMachinesTest, testing::Values(Launch{&device_launchers()[1], 4}),
                         launch_name);

class DeviceMemoryKindsTest : public FlockTest {};

// Rank 0 passes a tensor in host memory and the others in device memory, and vice versa.
TEST_P(DeviceMemoryKindsTest, DifferentKindsOfMemoryAreAMismatchOnBothSides) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{2'200'000}})
    for (const bool first_on_host : {true, false})
      run([=](Flock& flock) {
        flock.set_schedule("complete");
        const bool on_host = (flock.rank() == 0) == first_on_host;
        auto x = start_block<float>(flock.rank(), count);
        const DeviceBlock<float> y(x);
        const Buffer mine = on_host ? host_buffer(x) : y.buffer();
        const std::string text = message_of<Mismatch>([&] {
          ByteOperations(flock).neighbor_allreduce({{mine, mine}}, {}, "kinds").wait();
        });
        require(text.find("float32 in host memory") != std::string::npos &&
                    text.find("float32 in CUDA memory") != std::string::npos,
                text);
        require(same_bits(on_host ? x : y.values(), start_block<float>(flock.rank(), count)), "was changed");
        for (int k = 0; k < 3; ++k) {
          std::vector<std::int64_t> sum = {1};
          flock.allreduce(sum, Reduction::sum, "go on");
          require(sum[0] == flock.size(), "after a mismatch");
        }
        ByteOperations(flock).neighbor_allreduce({{y.buffer(), y.buffer()}}, {}, "after").wait();
      });
}

TEST_P(DeviceMemoryKindsTest, UnsupportedOperationsOnDeviceMemorySaySo) {
  run([](Flock& flock) {
    std::vector<float> x(8);
    const DeviceBlock<float> y(8);
    const DeviceBlock<std::int32_t> integers(8);
    const ByteOperations operations(flock);
    const Buffer d = y.buffer(), h = host_buffer(x);
    const auto refusal = [&](const auto& call) { return message_of<InvalidArgument>([&] { call(); }); };
    std::string text = refusal([&] { operations.neighbor_allreduce({{d, d}, {h, h, 32}}, {}, "mixed"); });
    require(text.find("mixed") == 0 && text.find("host memory") != std::string::npos, text);
    text = refusal([&] { operations.neighbor_allreduce({{d, h}}, {}, "other"); });
    require(text.find("one kind of memory") != std::string::npos, text);
    text = refusal([&] {
      operations.neighbor_allreduce({{integers.buffer(), integers.buffer()}}, {}, "whole");
    });
    require(text.find("int32 cannot be averaged") != std::string::npos, text);
    require(flock.step() == 0, "a refused operation takes no step");
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceMemoryKindsTest, testing::ValuesIn(device_launches({2, 3})),
                         launch_name);

// A rank that joined without a device gets the same error.
TEST(DeviceMemoryKindTest, ARankWithoutDeviceMessagesSeesTheMismatchToo) {
  auto plain = local_threads(2);
  kernel::set_device(std::make_shared<kernel::FakeDevice>());
  plain[0] = with_device_messages(plain[0], "one rank with a device");
  std::array<std::string, 2> texts;
  const auto rank_body = [&](std::size_t rank) {
    Flock flock(std::move(plain[rank]));
    flock.set_timeout(20s);
    auto x = start_block<float>(flock.rank(), 5);
    Pieces pieces = {{host_buffer(x), host_buffer(x)}};
    std::optional<DeviceBlock<float>> y;
    if (rank == 0) pieces = {{y.emplace(x).buffer(), y->buffer()}};
    texts[rank] = message_of<Mismatch>(
        [&] { ByteOperations(flock).neighbor_allreduce(std::move(pieces), {}, "kinds").wait(); });
  };
  std::thread other([&] { rank_body(1); });
  rank_body(0);
  other.join();
  kernel::set_device(nullptr);
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("5 x float32 in host memory"), std::string::npos) << text;
    EXPECT_NE(text.find("5 x float32 in CUDA memory"), std::string::npos) << text;
  }
}

TEST(DeviceMemoryKindTest, AFlockWithoutDeviceMessagesSaysWhatItNeeds) {
  const Flock flock(local_threads(1).front());
  std::vector<float> x(8);
  const Buffer d(DType::float32, x.data(), 8, MemoryKind::cuda, nullptr);
  const std::string text = message_of<InvalidArgument>([&] {
    ByteOperations(flock).neighbor_allreduce({{d, d}}, {}, "grads").wait();
  });
  EXPECT_EQ(text.find("grads: this flock has no messages in CUDA memory"), 0U) << text;
}

}  // namespace
}  // namespace starling::flock

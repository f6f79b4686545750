// Tests the collectives, gathers and point-to-point messages of starling/flock on device memory (a
// FakeDevice): the results have the same bits as on host memory.
#include <thread>
#include <tuple>

#include "flock/reference.h"
#include "kernel/device_block.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/reduce_rounds.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

constexpr Reduction kReductions[] = {Reduction::sum, Reduction::min, Reduction::max, Reduction::average};

template <typename E>
Buffer on_host(std::vector<E>& x) {
  return {dtype_of<E>, x.data(), x.size()};
}

/// Gives a gather or a reduce-scatter memory for its result, in one kind of memory.
template <typename E>
class Result {
 public:
  explicit Result(MemoryKind memory) : memory_(memory) {}

  Room room() {
    return [this](std::size_t count) {
      elements_ = kernel::OwnedBuffer(dtype_of<E>, count, memory_);
      return elements_.buffer();
    };
  }
  std::vector<E> values() const {
    std::vector<E> found(elements_.buffer().count);
    kernel::transfer(on_host(found), elements_.buffer());
    return found;
  }

 private:
  MemoryKind memory_;
  kernel::OwnedBuffer elements_;
};

/// Calls f(operations, buffer, room) on the host and on the device, with the same elements.
template <typename E, typename F>
void require_same_result(std::vector<E> x, const std::string& what, const F& f) {
  Result<E> expected(MemoryKind::host), found(MemoryKind::cuda);
  f(on_host(x), expected.room(), "host").wait();
  const DeviceBlock<E> on_device(x);
  f(on_device.buffer(), found.room(), "device").wait();
  require(same_bits(found.values(), expected.values()), what + ": not the host's bits");
}

template <typename E>
void require_same_sums(Flock& flock, std::size_t count, std::uint64_t round) {
  const ByteOperations operations(flock);
  const auto start = start_block<E>(flock.rank(), count, round);
  for (const Reduction reduction : kReductions) {
    if (reduction == Reduction::average && !is_floating_element<E>) continue;
    const std::string what = fmt::format("{} of {} x {}", name(reduction), count, name(dtype_of<E>));
    auto expected = start;
    operations.allreduce({{on_host(expected), on_host(expected)}}, reduction, "host").wait();
    const DeviceBlock<E> x(start), in(start), out(count);
    operations.allreduce({{x.buffer(), x.buffer()}}, reduction, "device").wait();
    operations.allreduce({{in.buffer(), out.buffer()}}, reduction, "device").wait();
    require(same_bits(x.values(), expected) && same_bits(out.values(), expected),
            what + ": not the host's bits");
    require(same_bits(in.values(), start), what + ": the input was changed");
  }
}

class DeviceCollectivesTest : public FlockTest {};

// Short blocks, which every rank reduces as a whole, and long ones, reduced in slices.
TEST_P(DeviceCollectivesTest, AllreduceOfEveryTypeReductionAndSize) {
  run([](Flock& flock) {
    std::uint64_t round = 0;
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1003}, 40'000 / sizeof(E)})
        require_same_sums<E>(flock, count, round++);
    });
  });
}

TEST_P(DeviceCollectivesTest, AllreduceByEveryAlgorithm) {
  run([](Flock& flock) {
    for (const std::string algorithm : {"ring", "doubling", "halving", "tree", "native"}) {
      flock.set_allreduce(algorithm);
      require_same_sums<float>(flock, 1003, 1);
      require_same_sums<BFloat16>(flock, 517, 2);
      require_same_sums<std::int32_t>(flock, 1, 3);
      require_same_sums<double>(flock, 0, 4);
    }
  });
}

// The members' slices begin and end inside of tensors.
TEST_P(DeviceCollectivesTest, GroupsOfTensors) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    for (const std::string algorithm : {"direct", "ring"})
      for (const std::vector<std::size_t>& counts :
           {std::vector<std::size_t>{3, 0, 1001, 5}, {7, 9000, 1, 3001, 0, 9000}}) {
        flock.set_allreduce(algorithm);
        for (const Reduction reduction : kReductions) {
          std::vector<std::vector<float>> host;
          std::vector<DeviceBlock<float>> device;
          for (const std::size_t count : counts) {
            host.push_back(start_block<float>(flock.rank(), count, counts.size() + host.size()));
            device.emplace_back(host.back());
          }
          std::vector<Buffer> host_buffers, device_buffers;
          for (auto& x : host) host_buffers.push_back(on_host(x));
          for (const auto& x : device) device_buffers.push_back(x.buffer());
          operations.allreduce(pieces_of(host_buffers), reduction, "host").wait();
          operations.allreduce(pieces_of(device_buffers), reduction, "device").wait();
          for (std::size_t i = 0; i < host.size(); ++i)
            require(same_bits(device[i].values(), host[i]), fmt::format("{}, tensor {}", algorithm, i));
        }
      }
  });
}

TEST_P(DeviceCollectivesTest, ReduceScatter) {
  run([](Flock& flock) {
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t count : {0U, 1U, 5U, 1003U})
        for (const Reduction reduction : kReductions) {
          if (reduction == Reduction::average && !is_floating_element<E>) continue;
          require_same_result(start_block<E>(flock.rank(), count), "reduce_scatter",
                              [&](Buffer x, Room room, const std::string& name) {
                                return ByteOperations(flock).reduce_scatter(x, std::move(room), reduction,
                                                                            Name(name));
                              });
        }
    });
  });
}

TEST_P(DeviceCollectivesTest, BroadcastFromEveryRoot) {
  run([](Flock& flock) {
    for (Rank root = 0; root < flock.size(); ++root) {
      const DeviceBlock<std::int8_t> bytes(start_block<std::int8_t>(flock.rank(), 3));
      const DeviceBlock<double> doubles(start_block<double>(flock.rank(), 1001)), none(0);
      ByteOperations(flock)
          .broadcast(pieces_of(std::vector{bytes.buffer(), none.buffer(), doubles.buffer()}), root, "mixed")
          .wait();
      require(same_bits(bytes.values(), start_block<std::int8_t>(root, 3)) &&
                  same_bits(doubles.values(), start_block<double>(root, 1001)),
              "not the root's values");
    }
  });
}

TEST_P(DeviceCollectivesTest, GathersOfDifferentLengths) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    flock.set_schedule("exponential");  // every step is the same
    std::uint64_t round = 0;
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t scale : {0U, 1U, 301U}) {
        const std::size_t length = static_cast<std::size_t>(flock.rank() * 5 + 3) % 7 / 2 * scale;
        const auto x = start_block<E>(flock.rank(), length, round++);
        require_same_result(x, "allgather", [&](Buffer in, Room room, const std::string& name) {
          return operations.allgather(in, std::move(room), Name(name));
        });
        require_same_result(x, "neighbor_allgather", [&](Buffer in, Room room, const std::string& name) {
          return operations.neighbor_allgather(in, std::move(room), Name(name));
        });
        std::vector<Rank> others;
        for (Rank rank = 0; rank < flock.size(); ++rank)
          if (rank != flock.rank()) others.insert(others.begin(), rank);
        require_same_result(x, "chosen", [&](Buffer in, Room room, const std::string& name) {
          return operations.neighbor_allgather(in, std::move(room), others, others, Name("my " + name));
        });
      }
    });
  });
}

TEST_P(DeviceCollectivesTest, SendsInARing) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    const Rank n = flock.size();
    if (n == 1) return;
    for (const std::size_t count : {0U, 1U, 70'001U})
      for (std::uint64_t round = 0; round < 3; ++round) {
        const DeviceBlock<float> x(start_block<float>(flock.rank(), count, round)), y(count);
        operations.send(x.buffer(), (flock.rank() + 1) % n, "ring");
        // Clears x right after the send: in stream order, the message still has the old values.
        kernel::arithmetic_in(MemoryKind::cuda).zero(x.buffer());
        operations.recv(y.buffer(), (flock.rank() + n - 1) % n, "ring").wait();
        require(same_bits(y.values(), start_block<float>((flock.rank() + n - 1) % n, count, round)), "sent");
      }
  });
}

// Operations in both kinds of memory, started in a different order on every rank and finished by another
// thread.
TEST_P(DeviceCollectivesTest, OperationsOfBothKindsInterleave) {
  run([](Flock& flock) {
    constexpr std::size_t kNames = 8;
    constexpr std::size_t kCount = 10'000;
    const ByteOperations operations(flock);
    std::vector<std::vector<float>> host(kNames);
    std::vector<DeviceBlock<float>> device;
    std::vector<Pending> pending(kNames);
    for (std::size_t k = 0; k < kNames; ++k) {
      host[k] = start_block<float>(flock.rank(), kCount, k);
      device.emplace_back(host[k]);
    }
    for (std::size_t k = 0; k < kNames; ++k) {
      const std::size_t turn = (k + 3 * static_cast<std::size_t>(flock.rank())) % kNames;
      const Buffer x = turn % 2 == 0 ? device[turn].buffer() : on_host(host[turn]);
      pending[turn] = operations.allreduce({{x, x}}, Reduction::average, Name(fmt::format("name {}", turn)));
    }
    std::thread([&] {
      for (Pending& one : pending) one.wait();
    }).join();
    for (std::size_t k = 0; k < kNames; ++k) {
      auto expected = start_block<float>(flock.rank(), kCount, k);
      flock.average(expected, "expected");
      require(same_bits(k % 2 == 0 ? device[k].values() : host[k], expected), fmt::format("sum {}", k));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceCollectivesTest, testing::ValuesIn(device_launches({1, 2, 3, 4})),
                         launch_name);

class DevicePayloadsTest : public FlockTest {};

// Headers arrive first. The device waits for the payloads, unless survivors must agree about them or the
// caller goes on until they have arrived.
TEST_P(DevicePayloadsTest, TheHostWaitsForPayloadsOnlyIfItMust) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    const auto memory = std::make_unique<kernel::Flag>(0);
    kernel::Flag& gate = *memory;
    kernel::device().register_flags(&gate, sizeof(gate));
    std::uint32_t number = 0;
    for (const auto& [count, policy, complete] :
         {std::tuple{8U, OnPeerFailure::reweight, false}, std::tuple{20'000U, OnPeerFailure::reweight, false},
          std::tuple{8U, OnPeerFailure::raise, false}, std::tuple{20'000U, OnPeerFailure::raise, false},
          std::tuple{20'000U, OnPeerFailure::raise, true}}) {
      const DeviceBlock<float> x(std::vector<float>(count, 1));
      kernel::device().synchronize();
      ++number;
      flock.barrier();
      flock.on_peer_failure(policy);
      const bool waits = policy == OnPeerFailure::reweight || complete;
      if (flock.rank() == 1) kernel::device().wait(gate, number);
      Pending sum = operations.allreduce({{x.buffer(), x.buffer()}}, Reduction::sum, "sum", complete);
      if (flock.rank() == 1) {
        std::vector<Rank> word(1);
        for (Rank rank = 0; rank < flock.size(); ++rank)
          if (rank != 1) flock.recv(word, rank, "has looked");
        gate = number;
      } else {
        require(sum.wait_for(waits ? 20ms : 20s) != waits,
                waits ? "ended without rank 1" : "waits for rank 1");
        flock.send(std::vector<Rank>{0}, 1, "has looked");
      }
      sum.wait();
      require(x.values() == std::vector<float>(count, static_cast<float>(flock.size())), "the sum");
      flock.barrier();
    }
    kernel::device().synchronize();
    kernel::device().unregister_flags(&gate);
  });
}

TEST_P(DevicePayloadsTest, ATimeoutSaysThatADeviceIsSlow) {
  run([](Flock& flock) {
    flock.on_peer_failure(OnPeerFailure::reweight);
    const ByteOperations operations(flock);
    const auto memory = std::make_unique<kernel::Flag>(0);
    kernel::Flag& gate = *memory;
    kernel::device().register_flags(&gate, sizeof(gate));
    const DeviceBlock<float> x(8);
    kernel::device().synchronize();
    if (flock.rank() == 1) kernel::device().wait(gate, 1);
    if (flock.rank() == 0) {
      flock.set_timeout(200ms);
      const std::string text = message_of<TimedOut>([&] { operations.recv(x.buffer(), 1, "block").wait(); });
      require(text.find("The device of rank 1 has not finished what it sends") != std::string::npos, text);
      flock.set_timeout(40s);
      flock.send(std::vector<Rank>{0}, 1, "has waited");
    } else if (flock.rank() == 1) {
      operations.send(x.buffer(), 0, "block");
      std::vector<Rank> word(1);
      flock.recv(word, 0, "has waited");
      gate = 1;
      kernel::device().synchronize();
    }
    kernel::device().unregister_flags(&gate);
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DevicePayloadsTest, testing::ValuesIn(device_launches({2, 3})), launch_name);

class DeviceKindsTest : public FlockTest {};

// Rank 0 passes a tensor in host memory and the others in device memory, and vice versa.
TEST_P(DeviceKindsTest, DifferentKindsOfMemoryAreAMismatchOnAllRanks) {
  for (const std::size_t count : {0U, 5U, 20'000U})
    for (const bool first_on_host : {true, false})
      run([=](Flock& flock) {
        const ByteOperations operations(flock);
        flock.set_schedule("complete");
        const bool host = (flock.rank() == 0) == first_on_host;
        std::vector<Rank> others;
        for (Rank rank = 0; rank < flock.size(); ++rank)
          if (rank != flock.rank()) others.push_back(rank);
        const auto start = start_block<float>(flock.rank(), count);
        auto x = start;
        const DeviceBlock<float> y(start);
        const Buffer mine = host ? on_host(x) : y.buffer();
        Result<float> result(mine.memory);
        const std::map<std::string, std::function<Pending()>> calls = {
            {"sum",
             [&] {
               return operations.allreduce({{mine, mine}}, Reduction::sum, "sum");
             }},
            {"scatter",
             [&] { return operations.reduce_scatter(mine, result.room(), Reduction::sum, "scatter"); }},
            {"root",
             [&] {
               return operations.broadcast({{mine, mine}}, 0, "root");
             }},
            {"gather", [&] { return operations.allgather(mine, result.room(), "gather"); }},
            {"neighbors", [&] { return operations.neighbor_allgather(mine, result.room(), "neighbors"); }},
            {"chosen",
             [&] { return operations.neighbor_allgather(mine, result.room(), others, others, "chosen"); }}};
        for (const auto& [name, call] : calls) {
          // With other algorithms, ranks that exchange nothing with rank 0 do not notice the difference.
          flock.set_allreduce(name == "sum" && flock.size() == 2 && first_on_host ? "ring" : "direct");
          const std::string text = message_of<Mismatch>([&] { call().wait(); });
          require(text.find("float32 in host memory") != std::string::npos &&
                      text.find("float32 in CUDA memory") != std::string::npos,
                  text);
          require(same_bits(host ? x : y.values(), start), name + ": was changed");
          flock.set_allreduce("direct");
          std::vector<std::int64_t> sum = {1};
          flock.allreduce(sum, Reduction::sum, "go on");
          require(sum[0] == flock.size(), "after a mismatch");
        }
        operations.broadcast({{y.buffer(), y.buffer()}}, 0, "after").wait();
      });
}

TEST_P(DeviceKindsTest, AMessageOfAnotherKindIsAMismatchAtBothEnds) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    std::vector<float> x(8);
    const DeviceBlock<float> y(8);
    for (const bool host : {true, false}) {
      const auto texts = [&](const std::string& text) {
        require(text.find("8 x float32 in host memory") != std::string::npos &&
                    text.find("8 x float32 in CUDA memory") != std::string::npos,
                text);
      };
      if (flock.rank() == 0) {
        operations.send(host ? on_host(x) : y.buffer(), 1, "block");
        std::vector<float> never(1);
        texts(message_of<Mismatch>([&] { flock.recv(never, 1, "never"); }));
      } else if (flock.rank() == 1) {
        texts(message_of<Mismatch>(
            [&] { operations.recv(host ? y.buffer() : on_host(x), 0, "block").wait(); }));
      }
      flock.barrier();
    }
  });
}

TEST_P(DeviceKindsTest, ResultsLieWhereTheInputDoes) {
  run([](Flock& flock) {
    const ByteOperations operations(flock);
    const DeviceBlock<float> y(start_block<float>(flock.rank(), 6));
    std::vector<float> x(64);
    const auto refused = [&](const std::string& name, const std::function<Pending()>& call) {
      const std::string text = message_of<InvalidArgument>([&] { call().wait(); });
      require(text.find(name) == 0 && text.find("CUDA memory, not host memory") != std::string::npos, text);
    };
    const Room room = [&](std::size_t) { return on_host(x); };
    refused("all", [&] { return operations.allgather(y.buffer(), room, "all"); });
    refused("near", [&] { return operations.neighbor_allgather(y.buffer(), room, "near"); });
    refused("part", [&] { return operations.reduce_scatter(y.buffer(), room, Reduction::sum, "part"); });
    const std::string text = message_of<InvalidArgument>([&] {
      operations.allreduce({{y.buffer(), on_host(x)}}, Reduction::sum, "sum");
    });
    require(text.find("one kind of memory") != std::string::npos, text);
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceKindsTest, testing::ValuesIn(device_launches({2, 3})), launch_name);

TEST(DeviceKindTest, AFlockWithoutDeviceMessagesSaysWhatItNeeds) {
  const Flock flock(fabric::local_threads(1).front());
  std::vector<float> x(8);
  const Buffer d(DType::float32, x.data(), 8, MemoryKind::cuda, nullptr);
  const ByteOperations operations(flock);
  const Room room = [&](std::size_t) { return d; };
  for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
           [&] {
             operations.allreduce({{d, d}}, Reduction::sum, "mine");
           },
           [&] { operations.reduce_scatter(d, room, Reduction::sum, "mine"); },
           [&] {
             operations.broadcast({{d, d}}, 0, "mine");
           },
           [&] { operations.allgather(d, room, "mine"); },
           [&] { operations.neighbor_allgather(d, room, "mine"); }, [&] { operations.recv(d, 0, "mine"); },
           [&] { operations.send(d, 0, "mine"); }}) {
    const std::string text = message_of<InvalidArgument>(call);
    EXPECT_EQ(text.find("mine: this flock has no messages in CUDA memory"), 0U) << text;
  }
}

}  // namespace
}  // namespace starling::flock

// Covers starling/fabric/cuda/ and starling/fabric/device_messages.h.
#include "starling/fabric/device_messages.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/harness.h"
#include "kernel/device_block.h"
#include "kernel/fake_device.h"
#include "kernel/peer_mappings.h"
#include "starling/base/error.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;
using kernel::device;
using kernel::DeviceBlock;
using testing::AllOf;
using testing::HasSubstr;
using Floats = std::vector<float>;

void demand(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

// Returns the next message, or nothing once the sender is dead.
std::optional<Arrival> next_from(Fabric& fabric, Rank source) {
  const Deadline deadline = std::chrono::steady_clock::now() + 30s;
  for (;;) {
    const std::uint32_t wake_count = fabric.wake_count();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return arrival;
    if (!was_alive) return std::nullopt;
    demand(std::chrono::steady_clock::now() < deadline, fmt::format("nothing from rank {}", source));
    fabric.sleep(wake_count, {&source, 1}, deadline);
  }
}

void post_copy(Fabric& fabric, ConstBuffer values, std::vector<Rank> others, std::uint64_t sequence) {
  const Outgoing message = reserve(fabric, values.bytes(), values.memory);
  kernel::arithmetic_in(values.memory).copy(message.buffer(values.dtype, values.count), values);
  MessageHeader header;
  header.sequence = sequence;
  header.count = values.count;
  for (const Rank to : others)
    if (to != fabric.rank()) fabric.post(message, header, to);
}

void post_floats(Fabric& fabric, const Floats& values, Rank to, std::uint64_t sequence, MemoryKind memory) {
  if (memory == MemoryKind::host)
    post_copy(fabric, {DType::float32, values.data(), values.size()}, {to}, sequence);
  else
    post_copy(fabric, DeviceBlock<float>(values).buffer(), {to}, sequence);
}

// Enqueues a copy of the message and returns without waiting. The copy is zero if the sender died before the
// message was complete.
DeviceBlock<float> read_on_device(const Arrival& arrival) {
  const std::size_t count = arrival.header().count;
  DeviceBlock<float> result(count);
  const Term terms[] = {{ConstBuffer(result.buffer()), 0}, arrival.term(DType::float32, count, 0, 1)};
  device().arithmetic().combine(result.buffer(), terms);
  return result;
}

Floats floats_in(const Arrival& arrival) {
  demand(arrival.size() == arrival.header().count * sizeof(float), "size of a message");
  if (arrival.memory() == MemoryKind::cuda) return read_on_device(arrival).values();
  const auto* first = reinterpret_cast<const float*>(arrival.bytes().data());
  return {first, first + arrival.header().count};
}

Floats numbered(Rank rank, std::uint64_t k, std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(rank) * 1000 + static_cast<float>(k) + static_cast<float>(i % 977) / 1024;
  return values;
}

// A flag in this process that holds back a stream until the host opens it.
class Gate {
 public:
  Gate() { device().register_flags(&flag_, sizeof(flag_)); }
  ~Gate() {
    open();
    device().synchronize();
    device().unregister_flags(&flag_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Work that is enqueued after this call waits until open().
  void close() { device().wait(flag_, 1); }
  void open() { flag_ = 1; }

 private:
  kernel::Flag flag_ = 0;
};

class DeviceMessagesTest : public testing::TestWithParam<Launch> {
 protected:
  void run(const std::function<void(Fabric& fabric)>& body) const {
    const auto ends = GetParam().launcher->run(
        GetParam().size, [body](const std::shared_ptr<Fabric>& fabric) { body(*fabric); });
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

TEST_P(DeviceMessagesTest, MessagesOfBothKindsKeepTheirOrder) {
  run([](Fabric& fabric) {
    const std::vector<std::size_t> counts = {1, 0, 1000, 3, 70'000, 300'001};
    const auto memory_of = [](std::uint64_t k) {
      return k % 5 == 0 || k % 3 == 1 ? MemoryKind::cuda : MemoryKind::host;
    };
    constexpr std::uint64_t kMessages = 30;
    for (std::uint64_t k = 0; k < kMessages; ++k)
      for (Rank to = 0; to < fabric.size(); ++to)
        if (to != fabric.rank())
          post_floats(fabric, numbered(fabric.rank(), k, counts[k % counts.size()]), to, k, memory_of(k));
    for (Rank from = 0; from < fabric.size(); ++from)
      for (std::uint64_t k = 0; k < kMessages && from != fabric.rank(); ++k) {
        const auto arrival = next_from(fabric, from);
        demand(arrival && arrival->header().sequence == k, "out of order");
        demand(arrival->memory() == memory_of(k), "another kind of memory");
        demand(floats_in(*arrival) == numbered(from, k, counts[k % counts.size()]),
               fmt::format("message {} of rank {}", k, from));
      }
  });
}

// In a ring, every rank receives from both neighbors, so each neighbor has finished with the last message but
// one.
TEST_P(DeviceMessagesTest, TwoSlotsAreEnough) {
  run([](Fabric& fabric) {
    constexpr std::size_t kCount = 1 << 20;  // allocated as a piece of its own, in whole pages of any device
    std::vector<Rank> neighbors = {(fabric.rank() + 1) % fabric.size()};
    if (const Rank left = (fabric.rank() + fabric.size() - 1) % fabric.size(); left != neighbors[0])
      neighbors.push_back(left);
    const DeviceBlock<float> own(numbered(fabric.rank(), 0, kCount));
    const DeviceBlock<float> sum(kCount);
    for (std::uint64_t k = 0; k < 40; ++k) {
      {
        const Outgoing message = reserve(fabric, kCount * sizeof(float), MemoryKind::cuda);
        const Buffer there = message.buffer(DType::float32, kCount);
        const Term scaled[] = {{ConstBuffer(own.buffer()), static_cast<double>(k)}};
        device().arithmetic().combine(there, scaled);
        MessageHeader header;
        header.sequence = k;
        for (const Rank to : neighbors) fabric.post(message, header, to);
      }
      std::vector<Arrival> arrivals;
      std::vector<Term> terms = {{ConstBuffer(sum.buffer()), 1}};
      for (const Rank from : neighbors) {
        arrivals.push_back(*next_from(fabric, from));
        demand(arrivals.back().header().sequence == k, "out of order");
        terms.push_back(arrivals.back().term(DType::float32, kCount, 0, 1));
      }
      device().arithmetic().combine(sum.buffer(), terms);
    }
    const auto usage = fabric.device_messages()->usage();
    demand(usage.slots == 2 && usage.pieces == 2, fmt::format("{} slots", usage.slots));
    demand(usage.bytes < 2 * (kCount * sizeof(float) + 4096), fmt::format("{} bytes", usage.bytes));
    double expected = 0;
    for (const Rank from : neighbors) expected += 1000.0 * from;
    demand(sum.values()[0] == static_cast<float>(expected * 39 * 40 / 2), "the sum of all messages");
  });
}

// A receiver whose stream runs late still reads the right message, however many the sender has sent since.
TEST_P(DeviceMessagesTest, AMessageStaysUntilItsReadersDeviceHasReadIt) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kMessages = 12;
    if (fabric.rank() == 0) {
      std::vector<DeviceBlock<float>> sent;  // created beforehand, since creating them waits for the stream
      for (std::uint64_t k = 0; k < kMessages; ++k) sent.emplace_back(numbered(0, k, 5000));
      for (std::uint64_t k = 0; k < kMessages; ++k) {
        for (Rank to = 1; to < fabric.size(); ++to) {
          post_copy(fabric, sent[k].buffer(), {to}, k);
          next_from(fabric, to);
        }
      }
      return;
    }
    std::vector<DeviceBlock<float>> read;
    {
      Gate gate;
      for (std::uint64_t k = 0; k < kMessages; ++k) {
        if (k % 4 == 0) gate.close();
        const auto arrival = next_from(fabric, 0);
        read.push_back(read_on_device(*arrival));
        post_floats(fabric, {}, 0, k, MemoryKind::host);
      }
    }
    for (std::uint64_t k = 0; k < kMessages; ++k)
      demand(read[k].values() == numbered(0, k, 5000), fmt::format("message {}", k));
  });
}

TEST_P(DeviceMessagesTest, MessagesPostedBeforeLeavingArrive) {
  run([](Fabric& fabric) {
    if (fabric.rank() == 0) {
      for (Rank to = 1; to < fabric.size(); ++to)
        post_floats(fabric, numbered(to, 1, 1000), to, 1, MemoryKind::cuda);
      return;
    }
    const auto arrival = next_from(fabric, 0);
    demand(arrival && floats_in(*arrival) == numbered(fabric.rank(), 1, 1000), "the last message");
  });
}

// Posts ranges, and messages that no rank reads.
TEST_P(DeviceMessagesTest, RangesArriveAndUnreadMessagesAreGivenBack) {
  run([](Fabric& fabric) {
    const Rank right = (fabric.rank() + 1) % fabric.size();
    const Rank left = (fabric.rank() + fabric.size() - 1) % fabric.size();
    for (std::uint64_t k = 0; k < 30; ++k) {
      const Outgoing message = reserve(fabric, 3000 * sizeof(float), MemoryKind::cuda);
      device().arithmetic().copy(message.buffer(DType::float32, 3000),
                                 DeviceBlock<float>(numbered(fabric.rank(), k, 3000)).buffer());
      MessageHeader header;
      for (const auto& [first, count] : {std::pair{0U, 1000U}, {500U, 2000U}, {7U, 0U}}) {
        header.count = count;
        header.sequence = first;
        fabric.post({message, first * sizeof(float), count * sizeof(float)}, header, right);
      }
      for (int part = 0; part < 3; ++part) {
        const auto arrival = next_from(fabric, left);
        if (k % 3 == 1) continue;  // not read
        const auto whole = numbered(left, k, 3000);
        const auto first = whole.begin() + static_cast<std::ptrdiff_t>(arrival->header().sequence);
        demand(floats_in(*arrival) ==
                   Floats(first, first + static_cast<std::ptrdiff_t>(arrival->header().count)),
               "a range");
      }
    }
    demand(fabric.device_messages()->usage().slots <= 6, "slots are not reused");
  });
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceMessagesTest, testing::ValuesIn(device_launches({2, 3, 5})),
                         launch_name);

// Ranks run as processes, since some of them are killed.
std::vector<RankEnd> run_processes(Rank size, const std::function<void(Fabric& fabric)>& body) {
  return device_launchers()[1].run(size, [body](const std::shared_ptr<Fabric>& fabric) { body(*fabric); });
}
void expect_survivors_of(Rank victim, const std::vector<RankEnd>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (static_cast<Rank>(r) == victim)
      EXPECT_EQ(ends[r].signal, SIGKILL) << ends[r].message;
    else
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
}

enum class Moment { before_the_payload, while_it_is_written, after_it };

class SenderDeathTest : public testing::TestWithParam<Moment> {};

TEST_P(SenderDeathTest, ReadersContinueWithCompleteMessages) {
  const Moment moment = GetParam();
  const auto ends = run_processes(3, [moment](Fabric& fabric) {
    constexpr std::size_t kCount = 5000;
    // A round that every rank completes, so that memory is mapped.
    for (Rank to = 0; to < 3; ++to)
      if (to != fabric.rank())
        post_floats(fabric, numbered(fabric.rank(), 0, kCount), to, 0, MemoryKind::cuda);
    for (Rank from = 0; from < 3; ++from)
      if (from != fabric.rank())
        demand(floats_in(*next_from(fabric, from)) == numbered(from, 0, kCount), "the first round");
    if (fabric.rank() == 2) {
      Gate gate;
      const DeviceBlock<float> values(numbered(2, 1, kCount));
      const Outgoing message = reserve(fabric, kCount * sizeof(float), MemoryKind::cuda);
      const Buffer there = message.buffer(DType::float32, kCount);
      if (moment == Moment::before_the_payload) gate.close();
      device().arithmetic().copy(there.part(0, kCount / 2), values.buffer().part(0, kCount / 2));
      if (moment == Moment::while_it_is_written) gate.close();
      device().arithmetic().copy(there.part(kCount / 2, kCount / 2),
                                 values.buffer().part(kCount / 2, kCount / 2));
      MessageHeader header;
      header.count = kCount;
      for (const Rank to : {0, 1}) fabric.post(message, header, to);
      if (moment == Moment::after_it) device().synchronize();
      for (const Rank from : {0, 1}) next_from(fabric, from);  // both have enqueued their work
      kill(getpid(), SIGKILL);
    }
    const auto arrival = next_from(fabric, 2);
    const DeviceBlock<float> result = read_on_device(*arrival);
    post_floats(fabric, {}, 2, 0, MemoryKind::host);
    demand(eventually([&] { return !fabric.alive(2); }), "rank 2 is not reported dead");
    const auto dead = std::chrono::steady_clock::now();
    const Floats found = result.values();
    demand(std::chrono::steady_clock::now() - dead < 1s, "the stream waits for the dead rank");
    demand(found == (moment == Moment::after_it ? numbered(2, 1, kCount) : Floats(kCount)),
           fmt::format("the result is {}", found[kCount - 1]));
    // The survivors continue.
    const Rank other = 1 - fabric.rank();
    for (std::uint64_t k = 0; k < 20; ++k) {
      post_floats(fabric, numbered(fabric.rank(), k, kCount), other, k, MemoryKind::cuda);
      post_floats(fabric, numbered(fabric.rank(), k, kCount), 2, k, MemoryKind::cuda);
      demand(floats_in(*next_from(fabric, other)) == numbered(other, k, kCount), "survivors");
    }
    demand(fabric.device_messages()->usage().slots <= 5, "messages to the dead rank keep their slots");
  });
  expect_survivors_of(2, ends);
}

std::string moment_name(const testing::TestParamInfo<Moment>& test) {
  if (test.param == Moment::before_the_payload) return "Before";
  return test.param == Moment::while_it_is_written ? "While" : "After";
}

INSTANTIATE_TEST_SUITE_P(Moments, SenderDeathTest,
                         testing::Values(Moment::before_the_payload, Moment::while_it_is_written,
                                         Moment::after_it),
                         moment_name);

// A receiver cannot map the memory of a sender that has died: its message counts as not sent.
TEST(DeviceDeathTest, AFirstMessageWhoseSenderDiesArrivesOrIsLost) {
  for (int run = 0; run < 5; ++run) {
    const auto ends = run_processes(3, [run](Fabric& fabric) {
      if (fabric.rank() == 2) {
        for (const Rank to : {0, 1}) post_floats(fabric, numbered(2, 0, 100), to, 0, MemoryKind::cuda);
        if (run % 2 == 0) device().synchronize();
        kill(getpid(), SIGKILL);
      }
      if (const auto arrival = next_from(fabric, 2)) {
        const Floats found = read_on_device(*arrival).values();
        demand(found == numbered(2, 0, 100) || found == Floats(100), "half a message");
      }
      const Rank other = 1 - fabric.rank();
      post_floats(fabric, numbered(fabric.rank(), 7, 100), other, 7, MemoryKind::cuda);
      demand(floats_in(*next_from(fabric, other)) == numbered(other, 7, 100), "survivors");
    });
    expect_survivors_of(2, ends);
  }
}

// The owner's stream waits for the device of a receiver whose host has already released the message.
TEST(DeviceDeathTest, AReadersDeathEndsTheWaitForItsDevice) {
  const auto ends = run_processes(2, [](Fabric& fabric) {
    if (fabric.rank() == 1) {
      Gate gate;
      gate.close();
      read_on_device(*next_from(fabric, 0));
      post_floats(fabric, {}, 0, 0, MemoryKind::host);
      next_from(fabric, 0);
      kill(getpid(), SIGKILL);
    }
    post_floats(fabric, numbered(0, 0, 100), 1, 0, MemoryKind::cuda);
    next_from(fabric, 1);
    // Gets the same slot, since the receiver's host has released it.
    const Outgoing next = reserve(fabric, 100 * sizeof(float), MemoryKind::cuda);
    demand(fabric.device_messages()->usage().slots == 1, "another slot");
    post_floats(fabric, {}, 1, 1, MemoryKind::host);
    demand(eventually([&] { return !fabric.alive(1); }), "rank 1 is not reported dead");
    const auto dead = std::chrono::steady_clock::now();
    device().synchronize();
    demand(std::chrono::steady_clock::now() - dead < 1s, "the stream waits for the dead rank");
  });
  expect_survivors_of(1, ends);
}

// Mappings of other ranks' memory in this process.
TEST(DeviceDeathTest, TheMemoryOfTheDeadIsNotKept) {
  if (std::getenv("STARLING_TEST_DEVICE") != nullptr) GTEST_SKIP() << "counts mappings of a FakeDevice";
  const auto ends = run_processes(3, [](Fabric& fabric) {
    constexpr std::size_t kCount = 400'000;
    const auto exchange = [&](std::uint64_t k, std::vector<Rank> others) {
      std::erase(others, fabric.rank());
      post_copy(fabric, DeviceBlock<float>(numbered(fabric.rank(), k, kCount)).buffer(), others, k);
      for (const Rank from : others)
        demand(floats_in(*next_from(fabric, from)) == numbered(from, k, kCount), "an exchange");
    };
    exchange(0, {0, 1, 2});
    demand(kernel::peer_mappings() == 2, "a mapping of each peer");
    if (fabric.rank() == 2) {
      for (const Rank from : {0, 1}) next_from(fabric, from);
      kill(getpid(), SIGKILL);
    }
    post_floats(fabric, {}, 2, 1, MemoryKind::host);
    demand(eventually([&] { return !fabric.alive(2); }), "rank 2 is not reported dead");
    for (std::uint64_t k = 1; k < 30; ++k) exchange(k, {0, 1});
    MessageHeader pieces;
    pieces.count = fabric.device_messages()->usage().pieces;
    fabric.post(fabric.reserve(0), pieces, 1 - fabric.rank());
    const auto theirs = next_from(fabric, 1 - fabric.rank())->header().count;
    demand(static_cast<std::uint64_t>(kernel::peer_mappings()) == theirs,
           fmt::format("{} mappings of {} pieces", kernel::peer_mappings(), theirs));
  });
  expect_survivors_of(2, ends);
}

/// Fabrics of several ranks in one thread, with options.
class DeviceFabrics {
 public:
  explicit DeviceFabrics(Rank size, const CudaOptions& options = {},
                         const kernel::FakeDeviceOptions& device = {})
      : device_(std::make_shared<kernel::FakeDevice>(device)) {
    kernel::set_device(device_);
    const std::string job = fmt::format("device-fabrics-{}-{}", getpid(), jobs_++);
    for (auto& fabric : local_threads(size)) fabrics_.push_back(with_device_messages(fabric, job, options));
  }
  ~DeviceFabrics() {
    std::vector<std::thread> leaving;  // leaving waits for the other ranks
    for (auto& fabric : fabrics_) leaving.emplace_back([&fabric] { fabric.reset(); });
    for (std::thread& thread : leaving) thread.join();
    kernel::set_device(nullptr);
  }
  DeviceFabrics(const DeviceFabrics&) = delete;
  DeviceFabrics& operator=(const DeviceFabrics&) = delete;

  Fabric& operator[](std::size_t rank) { return *fabrics_[rank]; }
  void leave(std::size_t rank) { fabrics_[rank].reset(); }
  kernel::FakeDevice& device() { return *device_; }

 private:
  static inline int jobs_ = 0;
  std::shared_ptr<kernel::FakeDevice> device_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

TEST(DeviceMemoryTest, TheLimitNamesTheHolders) {
  DeviceFabrics fabrics(2, {.memory_limit = 9'000'000});
  const Outgoing held = reserve(fabrics[0], 4'000'000, MemoryKind::cuda);
  post_floats(fabrics[0], Floats(1'000'000), 1, 0, MemoryKind::cuda);
  const auto unread = next_from(fabrics[1], 0);
  EXPECT_THAT([&] { reserve(fabrics[0], 2'000'000, MemoryKind::cuda); },
              testing::ThrowsMessage<Error>(AllOf(
                  HasSubstr("a message of 2000000 bytes"), HasSubstr("at most 9000000"),
                  HasSubstr("this rank's operations hold 4001792"), HasSubstr("rank 1 holds 4000000"))));
  EXPECT_EQ(reserve(fabrics[1], 8'000'000, MemoryKind::cuda).size(), 8'000'000U);
}

TEST(DeviceMemoryTest, TooLittleDeviceMemoryNamesBoth) {
  DeviceFabrics fabrics(1, {}, {.memory = 5'000'000});
  const Outgoing held = reserve(fabrics[0], 4'000'000, MemoryKind::cuda);
  EXPECT_THAT([&] { reserve(fabrics[0], 4'000'000, MemoryKind::cuda); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("a message of 4000000 bytes"),
                                                  HasSubstr("beside the 4001792"), HasSubstr("are free"))));
}

// A rank whose stream still waits for a message leaves in a limited time, and keeps what the stream reads.
TEST(DeviceMemoryTest, LeavingDoesNotFreeWhatAStreamWaitsFor) {
  DeviceFabrics fabrics(2, {.linger = 50ms});
  const std::vector<kernel::DeviceContext> streams = {{0, nullptr}, {0, fabrics.device().new_stream()}};
  static kernel::Flag gate = 0;
  device().register_flags(&gate, sizeof(gate));
  const DeviceBlock<float> values(Floats(1000, 3)), sum(1000);
  {
    const kernel::DeviceScope scope(streams[1]);
    device().wait(gate, 1);
    post_copy(fabrics[0], values.buffer(), {1}, 0);
  }
  {
    std::optional<Arrival> arrival = next_from(fabrics[1], 0);
    const Term terms[] = {{ConstBuffer(sum.buffer()), 1}, arrival->term(DType::float32, 1000, 0, 1)};
    device().arithmetic().combine(sum.buffer(), terms);
  }
  testing::internal::CaptureStderr();
  fabrics.leave(1);
  fabrics.leave(0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 1 leaves while its device waits"), HasSubstr("rank 0 leaves")));
  gate = 1;
  device().synchronize();
  EXPECT_EQ(sum.values(), Floats(1000, 3));
}

// When sizes change, memory of the old sizes is freed, and receivers unmap it.
TEST(DeviceMemoryTest, FreesUnusedMemory) {
  DeviceFabrics fabrics(2, {.memory_limit = 10'000'000}, {.seed = 3});
  const auto bytes_free = [&] { return fabrics.device().devices()[0].bytes_free; };
  const std::size_t before = bytes_free();
  for (std::uint64_t k = 0; k < 12; ++k) {
    const std::size_t count = 600'000 + 170'000 * (k % 4);
    post_floats(fabrics[0], numbered(0, k, count), 1, k, MemoryKind::cuda);
    ASSERT_EQ(floats_in(*next_from(fabrics[1], 0)), numbered(0, k, count));
    EXPECT_LE(before - bytes_free(), 10'000'000U);
  }
  EXPECT_LE(kernel::peer_mappings(), 4);
}

// A message lies on the device of the thread that reserves it; it may be written and sent on any of its
// streams.
TEST(DeviceMemoryTest, StreamsAndDevicesOfOneRank) {
  DeviceFabrics fabrics(2, {}, {.seed = 9, .devices = 2});
  const auto usage = [&] { return fabrics[0].device_messages()->usage(); };
  for (const int number : {0, 1, 0, 1}) {
    const kernel::DeviceScope scope({number, nullptr});
    post_floats(fabrics[0], Floats(100, 3), 1, 0, MemoryKind::cuda);
    EXPECT_EQ(floats_in(*next_from(fabrics[1], 0)), Floats(100, 3));
  }
  EXPECT_EQ(usage().slots, 2U);
  std::vector<kernel::DeviceContext> streams;
  for (int k = 0; k < 4; ++k) streams.push_back({0, fabrics.device().new_stream()});
  const DeviceBlock<float> one(Floats(5000, 1)), sum(5000);
  for (std::size_t k = 0; k < 40; ++k) {
    std::optional<Outgoing> message;
    {
      const kernel::DeviceScope scope(streams[k % 4]);
      message = reserve(fabrics[0], 5000 * sizeof(float), MemoryKind::cuda);
      const Term terms[] = {{ConstBuffer(one.buffer()), static_cast<double>(k)}};
      device().arithmetic().combine(message->buffer(DType::float32, 5000), terms);
    }
    {
      const kernel::DeviceScope scope(streams[(k + 1) % 4]);
      fabrics[0].post(*message, {}, 1);
    }
    std::optional<Arrival> arrival = next_from(fabrics[1], 0);
    const kernel::DeviceScope scope(streams[(k + 2) % 4]);
    device().order_after(streams[(k + 1) % 4]);  // after the last sum
    const Term terms[] = {{ConstBuffer(sum.buffer()), 1}, arrival->term(DType::float32, 5000, 0, 1)};
    device().arithmetic().combine(sum.buffer(), terms);
    const kernel::DeviceScope other(streams[(k + 3) % 4]);
    arrival.reset();
    message.reset();
  }
  const kernel::DeviceScope scope(streams[(39 + 2) % 4]);
  EXPECT_EQ(sum.values(), Floats(5000, 39 * 40 / 2));
  EXPECT_LE(usage().slots, 4U);
}

TEST(DeviceMemoryTest, LeavesNoOpenFilesOrSockets) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto sockets = [] {  // counts this process only, since other tests run at the same time
    std::set<std::string> own;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;  // for the iterator's own descriptor, which is closed by now
      const std::string target = std::filesystem::read_symlink(file.path(), closed).string();
      if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
    }
    std::ifstream all("/proc/net/unix");
    int found = 0;
    for (std::string line; std::getline(all, line);) {
      std::istringstream words(line);
      std::string inode;
      for (int i = 0; i < 7; ++i) words >> inode;
      if (own.contains(inode) && line.find(fmt::format("@starling-{}-", geteuid())) != line.npos) ++found;
    }
    return found;
  };
  const auto files_before = open_files();
  const int sockets_before = sockets();
  {
    DeviceFabrics fabrics(3, {}, {.seed = 5});
    for (const Rank to : {1, 2}) post_floats(fabrics[0], Floats(1000, 3), to, 0, MemoryKind::cuda);
    for (const std::size_t at : {1U, 2U}) EXPECT_EQ(floats_in(*next_from(fabrics[at], 0)), Floats(1000, 3));
    EXPECT_GT(sockets(), sockets_before);
  }
  EXPECT_EQ(open_files(), files_before);
  EXPECT_EQ(sockets(), sockets_before);
}

TEST(DeviceMemoryTest, AForkedChildLeavesItsParentsMessagesAlone) {
  DeviceFabrics fabrics(2);
  std::optional<Outgoing> held = reserve(fabrics[0], 4000, MemoryKind::cuda);
  post_floats(fabrics[0], Floats(1000, 3), 1, 0, MemoryKind::cuda);
  std::optional<Arrival> arrival = next_from(fabrics[1], 0);
  const pid_t child = fork();
  if (child == 0) {
    held.reset();
    arrival.reset();
    try {
      reserve(fabrics[0], 4000, MemoryKind::cuda);
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("forked child") != std::string::npos ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(floats_in(*arrival), Floats(1000, 3));
  EXPECT_EQ(fabrics[0].device_messages()->usage().slots, 2U);
}

TEST(DeviceMemoryTest, AFabricWithoutDevicesSaysWhatIsNeeded) {
  const auto fabric = local_threads(1)[0];
  EXPECT_EQ(fabric->device_messages(), nullptr);
  EXPECT_THAT([&] { reserve(*fabric, 8, MemoryKind::cuda); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("no messages in CUDA memory")));
}

}  // namespace
}  // namespace starling::fabric

// Covers starling/fabric/cuda/ and starling/fabric/device_messages.h.
#include "starling/fabric/device_messages.h"

#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/device_messages.h"
#include "kernel/peer_mappings.h"
#include "starling/base/error.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace starling::fabric

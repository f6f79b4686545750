// Covers starling/fabric/fabric.h: every fabric must pass.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/harness.h"
#include "starling/base/error.h"

// What every fabric must do, with 1, 2, 3, 5 and 8 ranks.

namespace starling::fabric {
namespace {

using namespace std::chrono_literals;

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

// Returns the next message from `source`; throws Error if it died without sending one.
Arrival receive(Fabric& fabric, Rank source) {
  const Deadline deadline = std::chrono::steady_clock::now() + 30s;
  for (;;) {
    const std::uint32_t wake_count = fabric.wake_count();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return std::move(*arrival);
    if (!was_alive) throw Error(fmt::format("lost rank {}", source));
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(fmt::format("nothing from rank {} in time", source));
    fabric.sleep(wake_count, {&source, 1}, deadline);
  }
}

void send(Fabric& fabric, Rank to, const std::vector<std::uint64_t>& values, std::uint64_t sequence = 0) {
  Outgoing message = fabric.reserve(values.size() * sizeof(std::uint64_t));
  if (!values.empty()) std::memcpy(message.bytes().data(), values.data(), message.bytes().size());
  MessageHeader header;
  header.sequence = sequence;
  header.count = values.size();
  fabric.post(message, header, to);
}

/// Tests that run with every launcher and every size.
class ConformanceTest : public testing::TestWithParam<Launch> {
 protected:
  using FabricBody = std::function<void(Fabric& fabric)>;

  static RankBody plain(const FabricBody& body) {
    return [body](const std::shared_ptr<Fabric>& fabric) { body(*fabric); };
  }

  void run(const FabricBody& body) const {
    const auto ends = GetParam().launcher->run(GetParam().size, plain(body));
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

TEST_P(ConformanceTest, RanksAndSizesAreRight) {
  const Rank size = GetParam().size;
  run([size](Fabric& fabric) {
    require(fabric.size() == size, "size");
    require(fabric.rank() >= 0 && fabric.rank() < size, "rank");
    require(fabric.alive(fabric.rank()), "dead to itself");
  });
}

TEST_P(ConformanceTest, EveryPairExchangesMessagesOfEverySizeInOrder) {
  run([](Fabric& fabric) {
    const std::vector<std::size_t> counts = {0, 1, 7, 1000, 100'000};
    for (Rank to = 0; to < fabric.size(); ++to)
      for (std::size_t k = 0; k < counts.size() && to != fabric.rank(); ++k)
        send(fabric, to,
             std::vector<std::uint64_t>(counts[k], static_cast<std::uint64_t>(fabric.rank()) * 100 + k), k);
    for (Rank from = 0; from < fabric.size(); ++from)
      for (std::size_t k = 0; k < counts.size() && from != fabric.rank(); ++k) {
        const Arrival arrival = receive(fabric, from);
        require(arrival.header().sequence == k && arrival.header().count == counts[k], "out of order");
        require(arrival.bytes().size() == counts[k] * 8, "size");
        const auto* values = reinterpret_cast<const std::uint64_t*>(arrival.bytes().data());
        for (std::size_t i = 0; i < counts[k]; ++i)
          require(values[i] == static_cast<std::uint64_t>(from) * 100 + k, "wrong value");
      }
  });
}

TEST_P(ConformanceTest, AMessageToManyIsStoredOnce) {
  run([](Fabric& fabric) {
    std::vector<Rank> others;
    for (Rank r = 0; r < fabric.size(); ++r)
      if (r != fabric.rank()) others.push_back(r);
    for (int k = 0; k < 50; ++k) {
      Outgoing message = fabric.reserve(8);
      const std::uint64_t value =
          static_cast<std::uint64_t>(fabric.rank()) * 1000 + static_cast<std::uint64_t>(k);
      std::memcpy(message.bytes().data(), &value, 8);
      for (const Rank to : others) fabric.post(message, {}, to);
    }
    for (int k = 0; k < 50; ++k)
      for (const Rank from : others) {
        const Arrival arrival = receive(fabric, from);
        std::uint64_t value = 0;
        std::memcpy(&value, arrival.bytes().data(), 8);
        require(value == static_cast<std::uint64_t>(from) * 1000 + static_cast<std::uint64_t>(k),
                "wrong value");
      }
  });
}

TEST_P(ConformanceTest, ThousandsOfMessagesAreReleasedInAnyOrder) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kMessages = 2000;
    const Rank right = (fabric.rank() + 1) % fabric.size();
    const Rank left = (fabric.rank() + fabric.size() - 1) % fabric.size();
    if (right == fabric.rank()) return;
    std::mt19937 random(static_cast<unsigned>(fabric.rank()));
    for (std::uint64_t k = 0; k < kMessages; ++k)
      send(fabric, right, std::vector<std::uint64_t>(random() % 300, k), k);
    std::vector<Arrival> held;
    for (std::uint64_t k = 0; k < kMessages; ++k) {
      held.push_back(receive(fabric, left));
      require(held.back().header().sequence == k, "out of order");
      if (held.size() > 100) {
        const std::size_t at = random() % held.size();
        const auto bytes = held[at].bytes();
        for (std::size_t i = 0; i < bytes.size(); i += 8) {
          std::uint64_t value = 0;
          std::memcpy(&value, bytes.data() + i, 8);
          require(value == held[at].header().sequence, "overwritten while held");
        }
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  });
}

// Word w of message k from `rank`.
std::uint64_t word(Rank rank, std::uint64_t k, std::uint64_t w) {
  return (static_cast<std::uint64_t>(rank) * 1'000'000 + k) * 1'000'000 + w;
}

Outgoing words(Fabric& fabric, std::uint64_t k, std::uint64_t count) {
  Outgoing message = fabric.reserve(count * 8);
  for (std::uint64_t w = 0; w < count; ++w) {
    const std::uint64_t value = word(fabric.rank(), k, w);
    std::memcpy(message.bytes().data() + w * 8, &value, 8);
  }
  return message;
}

// Posts words [first, first + count) of message k.
void post_words(Fabric& fabric, const Outgoing& message, std::uint64_t k, std::uint64_t first,
                std::uint64_t count, Rank to) {
  MessageHeader header;
  header.sequence = k;
  header.detail = first;
  header.count = count;
  fabric.post({message, first * 8, count * 8}, header, to);
}

void require_words(const Arrival& arrival) {
  const MessageHeader& header = arrival.header();
  require(header.bytes == header.count * 8 && arrival.bytes().size() == header.bytes, "size of a range");
  for (std::uint64_t i = 0; i < header.count; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, arrival.bytes().data() + i * 8, 8);
    require(value == word(arrival.source(), header.sequence, header.detail + i), "not the range's words");
  }
}

TEST_P(ConformanceTest, EachPeerReceivesItsRangeOfAMessage) {
  run([](Fabric& fabric) {
    const auto n = static_cast<std::uint64_t>(fabric.size());
    const auto own = static_cast<std::uint64_t>(fabric.rank());
    // Each rank gets its share and everything after it; then empty ranges, from the middle and from the end.
    for (const std::uint64_t share : {0, 1, 10'000}) {
      const Outgoing message = words(fabric, share, n * share);
      for (std::uint64_t to = 0; to < n; ++to)
        for (const auto& [first, count] : {std::pair{to * share, share},
                                           {to * share, (n - to) * share},
                                           {n * share / 2, 0},
                                           {n * share, 0}})
          if (to != own) post_words(fabric, message, share, first, count, static_cast<Rank>(to));
    }
    for (Rank from = 0; from < fabric.size(); ++from)
      for (const std::uint64_t share : {0, 1, 10'000})
        for (const std::uint64_t count : {share, (n - own) * share, std::uint64_t{0}, std::uint64_t{0}}) {
          if (from == fabric.rank()) continue;
          const Arrival arrival = receive(fabric, from);
          require(arrival.header().sequence == share && arrival.header().count == count, "another range");
          require_words(arrival);
        }
  });
}

// Every rank posts ranges of one message to the right and to the left, and releases arrivals in any order: a
// range keeps its contents as long as it is held.
TEST_P(ConformanceTest, RangesAreReleasedInAnyOrder) {
  run([](Fabric& fabric) {
    constexpr std::uint64_t kRounds = 300;
    constexpr std::uint64_t kRanges = 4;
    constexpr std::size_t kHeld = 24;
    const Rank right = (fabric.rank() + 1) % fabric.size();
    const Rank left = (fabric.rank() + fabric.size() - 1) % fabric.size();
    if (right == fabric.rank()) return;
    std::mt19937 random(static_cast<unsigned>(fabric.rank()));
    std::vector<Arrival> held;
    for (std::uint64_t k = 0; k < kRounds; ++k) {
      {
        const std::uint64_t each = k % 3 == 0 ? 2000 : 20;  // large messages and small ones
        const Outgoing message = words(fabric, k, kRanges * each);
        for (std::uint64_t range = 0; range < kRanges; ++range)
          post_words(fabric, message, k, range * each, range == 1 ? 0 : each, range % 2 == 0 ? right : left);
        post_words(fabric, message, k, 0, kRanges * each, left);
      }
      for (const auto& [from, messages] : {std::pair{left, kRanges / 2}, {right, kRanges / 2 + 1}})
        for (std::uint64_t i = 0; i < messages; ++i) held.push_back(receive(fabric, from));
      while (held.size() > kHeld) {
        const std::size_t at = random() % held.size();
        require_words(held[at]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    for (const Arrival& arrival : held) require_words(arrival);
  });
}

TEST_P(ConformanceTest, HugeMessagesArrive) {
  if (GetParam().size != 2) GTEST_SKIP() << "takes too much memory";
  // More than 2^31 bytes in a soak, less in everyday tests.
  const std::size_t count = std::getenv("STARLING_SOAK") == nullptr ? 37'500'007 : 280'000'007;
  run([count](Fabric& fabric) {
    if (fabric.rank() == 1) {
      Outgoing message = fabric.reserve(count * sizeof(std::uint64_t));
      auto* values = reinterpret_cast<std::uint64_t*>(message.bytes().data());
      for (std::size_t i = 0; i < count; ++i) values[i] = i;
      fabric.post(message, {}, 0);
      return;
    }
    const Arrival arrival = receive(fabric, 1);
    require(arrival.bytes().size() == count * sizeof(std::uint64_t), "size");
    const auto* values = reinterpret_cast<const std::uint64_t*>(arrival.bytes().data());
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] != i) throw Error(fmt::format("wrong value at {}", i));
  });
}

TEST_P(ConformanceTest, WaitingUsesLittleCpu) {
  if (GetParam().size != 2) GTEST_SKIP() << "two show it";
  run([](Fabric& fabric) {
    const auto used = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    send(fabric, 1 - fabric.rank(), {1});
    receive(fabric, 1 - fabric.rank());
    const double before = used();
    if (fabric.rank() == 1) {
      std::this_thread::sleep_for(500ms);
      send(fabric, 0, {2});
    } else {
      receive(fabric, 1);
    }
    require(used() - before < 0.125,
            fmt::format("{} s of processor time for half a second of waiting", used() - before));
  });
}

TEST_P(ConformanceTest, MessagesPostedBeforeLeavingArrive) {
  run([](Fabric& fabric) {
    if (fabric.rank() == 0) {
      for (Rank to = 1; to < fabric.size(); ++to) send(fabric, to, {42});
      return;
    }
    require(eventually([&] { return !fabric.alive(0); }), "rank 0 does not leave");
    const Arrival arrival = receive(fabric, 0);
    require(arrival.bytes().size() == 8, "lost the last message");
    try {
      receive(fabric, 0);
    } catch (const Error& error) {
      require(std::string(error.what()) == "lost rank 0", error.what());
      return;
    }
    throw Error("a message from nowhere");
  });
}

TEST_P(ConformanceTest, ExposedMemoryIsSharedByAllRanks) {
  if (!GetParam().launcher->shares) GTEST_SKIP() << "no memory is shared over a network";
  run([](Fabric& fabric) {
    // Each rank exposes a slot for each rank, sends its handle, and writes into everyone's memory.
    const auto size = static_cast<std::size_t>(fabric.size());
    const std::uint64_t memory = fabric.expose(size * 8);
    const auto place = [&](Rank owner, std::uint64_t where, Rank writer) {
      auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(fabric.exposed(owner, where));
      return words + writer;
    };
    for (Rank r = 0; r < fabric.size(); ++r)
      require(place(fabric.rank(), memory, r)->load() == 0, "exposed memory is not zero");
    for (Rank to = 0; to < fabric.size(); ++to)
      if (to != fabric.rank()) send(fabric, to, {memory});
    for (Rank from = 0; from < fabric.size(); ++from) {
      std::uint64_t theirs = memory;
      if (from != fabric.rank()) {
        const Arrival arrival = receive(fabric, from);
        std::memcpy(&theirs, arrival.bytes().data(), 8);
      }
      place(from, theirs, fabric.rank())->store(static_cast<std::uint64_t>(fabric.rank()) + 100);
    }
    for (Rank to = 0; to < fabric.size(); ++to)
      if (to != fabric.rank()) send(fabric, to, {1});  // written
    for (Rank from = 0; from < fabric.size(); ++from) {
      if (from != fabric.rank()) receive(fabric, from);
      require(place(fabric.rank(), memory, from)->load() == static_cast<std::uint64_t>(from) + 100,
              "not written");
    }
    fabric.withdraw(memory, size * 8);
  });
}

/// Tests that need processes, with at least two ranks besides the victim.
class RankFailureTest : public ConformanceTest {};

TEST_P(RankFailureTest, PeersNoticeAKilledRankAndContinue) {
  const Rank size = GetParam().size;
  const bool delivers_last_message = GetParam().launcher->shares;
  const auto ends = GetParam().launcher->run(
      size, plain([delivers_last_message](Fabric& fabric) {
        const Rank victim = fabric.size() - 1;
        const Rank right = (fabric.rank() + 1) % victim;
        const Rank left = (fabric.rank() + victim - 1) % victim;
        if (fabric.rank() == victim) {
          for (Rank from = 0; from < victim; ++from) receive(fabric, from);  // all ranks have joined
          if (delivers_last_message) send(fabric, 0, {7});
          kill(getpid(), SIGKILL);
        }
        send(fabric, victim, {});
        for (std::uint64_t k = 0; k < 300 && right != fabric.rank(); ++k) {
          send(fabric, right, {k}, k);
          send(fabric, victim, {k}, k);  // unread messages must not harm the sender
          require(receive(fabric, left).header().sequence == k, "survivors lost a message");
        }
        if (fabric.rank() == 0 && delivers_last_message)
          require(receive(fabric, victim).bytes().size() == 8, "posted before death, yet lost");
        try {
          receive(fabric, victim);
        } catch (const Error& error) {
          require(std::string(error.what()) == fmt::format("lost rank {}", victim), error.what());
          return;
        }
        throw Error("received a message from the dead rank");
      }));
  for (Rank r = 0; r + 1 < size; ++r)
    EXPECT_TRUE(ends[static_cast<std::size_t>(r)].ok) << ends[static_cast<std::size_t>(r)].message;
  EXPECT_EQ(ends.back().signal, SIGKILL);
}

TEST_P(RankFailureTest, AStoppedRankDelaysOnlyRanksThatWaitForIt) {
  run([](Fabric& fabric) {
    const Rank sleeper = fabric.size() - 1;
    if (fabric.rank() == sleeper) {
      const pid_t me = getpid();
      const pid_t waker = fork();  // a stopped process cannot wake itself
      if (waker == 0) {
        usleep(200'000);
        kill(me, SIGCONT);
        _exit(0);
      }
      kill(me, SIGSTOP);
      for (Rank from = 0; from < sleeper; ++from)
        for (std::uint64_t k = 0; k < 200; ++k)
          require(receive(fabric, from).header().sequence == k, "order after the stop");
      return;
    }
    for (std::uint64_t k = 0; k < 200; ++k) send(fabric, sleeper, {k}, k);  // posting never blocks
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ConformanceTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, RankFailureTest, testing::ValuesIn(launches({3, 5, 8}, true)), launch_name);

}  // namespace
}  // namespace starling::fabric

// Covers message delivery of starling/fabric/local.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "starling/fabric/local/local.h"

// Tests the shared-memory protocol under seeded interleavings: one thread plays all ranks, one call at a
// time, and compares with a model of what each pair must receive.

namespace starling::fabric {
namespace {

/// The messages that one rank holds.
struct HeldMessages {
  std::vector<Arrival> arrivals;
  std::vector<std::pair<Outgoing, std::uint64_t>> posted;  // still held by the sender, and their contents
};

struct Sent {
  std::uint64_t stamp;
  std::size_t bytes;
};

void fill(const Outgoing& message, std::uint64_t stamp) {
  for (std::size_t i = 0; i + 8 <= message.bytes().size(); i += 8)
    std::memcpy(message.bytes().data() + i, &stamp, 8);
}

bool holds(std::span<const std::byte> bytes, std::uint64_t stamp) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8)
    if (std::memcmp(bytes.data() + i, &stamp, 8) != 0) return false;
  return true;
}

template <typename T>
void drop_one(std::vector<T>& list, std::mt19937_64& random) {
  if (!list.empty()) list.erase(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size()));
}

void play(unsigned seed, Rank size) {
  std::mt19937_64 random(seed);
  auto fabrics = local_threads(size);
  std::vector<HeldMessages> held(static_cast<std::size_t>(size));
  std::vector<std::vector<std::deque<Sent>>> in_flight(
      static_cast<std::size_t>(size), std::vector<std::deque<Sent>>(static_cast<std::size_t>(size)));
  const auto draw = [&] { return static_cast<std::size_t>(random() % static_cast<std::uint64_t>(size)); };
  std::uint64_t stamp = seed;
  std::uint64_t mood = 0;  // alternates between mostly posting and mostly polling
  for (int call = 0; call < 3000; ++call) {
    if (random() % 60 == 0) mood = random() % 3;
    const std::size_t me = draw();
    const std::size_t other = draw();
    if (!fabrics[me] || me == other) continue;
    HeldMessages& mine = held[me];
    switch (mood == 0 ? random() % 16 : mood == 1 ? random() % 7 : 6 + random() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: {  // post a message to one or several ranks
        const std::size_t bytes = 8 * (random() % (random() % 8 == 0 ? 20'000 : 200));
        Outgoing message = fabrics[me]->reserve(bytes);
        fill(message, ++stamp);
        for (std::size_t to = 0; to < held.size(); ++to) {
          if (to == me || (to != other && random() % 3 != 0)) continue;
          MessageHeader header;
          header.sequence = stamp;
          fabrics[me]->post(message, header, static_cast<Rank>(to));
          if (fabrics[to]) in_flight[me][to].push_back({stamp, bytes});
        }
        if (random() % 4 == 0) mine.posted.emplace_back(std::move(message), stamp);
        break;
      }
      case 5:
        drop_one(mine.posted, random);
        break;
      case 6:
      case 7:
      case 8:
        drop_one(mine.arrivals, random);
        break;
      case 9: {  // rarely: a rank leaves and drops its messages
        if (random() % 200 != 0) break;
        mine = {};
        fabrics[me].reset();
        break;
      }
      default: {
        auto& expected = in_flight[other][me];
        auto arrival = fabrics[me]->poll(static_cast<Rank>(other));
        ASSERT_EQ(arrival.has_value(), !expected.empty()) << "seed " << seed << " call " << call;
        if (!arrival) break;
        ASSERT_EQ(arrival->header().sequence, expected.front().stamp) << "seed " << seed << ": out of order";
        ASSERT_EQ(arrival->bytes().size(), expected.front().bytes);
        expected.pop_front();
        mine.arrivals.push_back(std::move(*arrival));
      }
    }
    // The contents of held messages have not changed.
    if (call % 50 == 0)
      for (const HeldMessages& one : held) {
        for (const Arrival& arrival : one.arrivals)
          ASSERT_TRUE(holds(arrival.bytes(), arrival.header().sequence))
              << "seed " << seed << " call " << call;
        for (const auto& [message, number] : one.posted)
          ASSERT_TRUE(holds(message.bytes(), number)) << "seed " << seed << " call " << call;
      }
  }
  held.clear();  // before the fabrics they came from
}

TEST(InterleavingTest, MessagesOfEveryPairArriveInOrderAndComplete) {
  for (unsigned seed = 0; seed < 60; ++seed) play(seed, static_cast<Rank>(2 + seed % 4));
}

TEST(InterleavingTest, NoWakeUpIsLost) {
  // Posts around the moment when the receiver stops spinning and falls asleep. A lost wake-up would cost the
  // longest sleep each time.
  const auto fabrics = local_threads(2);
  constexpr int kRounds = 400;
  std::atomic<int> go{-1};
  int late = 0;
  std::thread poster([&] {
    std::mt19937 random(7);
    for (int round = 0; round < kRounds; ++round) {
      while (go.load() < round) std::this_thread::yield();
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 500);
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
      fabrics[0]->post(fabrics[0]->reserve(8), {}, 1);
    }
  });
  const Rank source = 0;
  for (int round = 0; round < kRounds; ++round) {
    go = round;
    const auto started = std::chrono::steady_clock::now();
    for (;;) {
      const std::uint32_t wake_count = fabrics[1]->wake_count();
      if (fabrics[1]->poll(0)) break;
      fabrics[1]->sleep(wake_count, {&source, 1}, Deadline::max());
    }
    if (std::chrono::steady_clock::now() - started > std::chrono::milliseconds(45)) ++late;
  }
  poster.join();
  EXPECT_LT(late, kRounds / 20);
}

}  // namespace
}  // namespace starling::fabric

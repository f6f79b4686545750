#include "starling/fabric/local/local.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/heap.h"
#include "starling/fabric/local/layout.h"

// Tests that are specific to the local fabric: its memory and its rendezvous.

namespace starling::fabric {
namespace {

void post(Fabric& fabric, std::size_t bytes, Rank to) {
  fabric.post(fabric.reserve(bytes), {}, to);
}

TEST(LocalTest, ReusesMemoryOfReleasedMessages) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int k = 0; k < 1000; ++k) {  // a gigabyte in total, with a limit of a megabyte
    post(*fabrics[0], 400'000, 1);
    ASSERT_TRUE(fabrics[1]->poll(0));
  }
}

TEST(LocalTest, ReusesSmallMessagesAndChunks) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int k = 0; k < 30'000; ++k) {
    post(*fabrics[0], 8000, 1);
    ASSERT_TRUE(fabrics[1]->poll(0));
  }
}

TEST(LocalTest, FreesAMessagePostedManyTimesOnce) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int round = 0; round < 3; ++round) {
    const Outgoing message = fabrics[0]->reserve(600'000);
    for (int k = 0; k < 100; ++k) {
      fabrics[0]->post(message, {}, 1);
      ASSERT_TRUE(fabrics[1]->poll(0));
    }
  }
}

TEST(LocalTest, AnExceededLimitNamesTheRanksThatHoldMemory) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(3, options);
  post(*fabrics[0], 500'000, 1);
  post(*fabrics[0], 400'000, 2);
  try {
    post(*fabrics[0], 300'000, 1);
    FAIL() << "more than the limit";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 holds 500000, rank 2 holds 400000"), std::string::npos)
        << error.what();
  }
  ASSERT_TRUE(fabrics[1]->poll(0));  // read and released at once
  post(*fabrics[0], 300'000, 1);
}

TEST(LocalTest, MemoryIsReusedOnceAllRangesAreReleased) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(3, options);
  {
    const Outgoing message = fabrics[0]->reserve(900'000);
    fabrics[0]->post({message, 0, 500'000}, {}, 1);
    fabrics[0]->post({message, 500'000, 300'000}, {}, 2);
    fabrics[0]->post({message, 900'000, 0}, {}, 2);
  }
  const auto refused = [&] {
    try {
      fabrics[0]->reserve(900'000);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused().find("rank 1 holds 500000, rank 2 holds 300000"), std::string::npos) << refused();
  ASSERT_TRUE(fabrics[1]->poll(0));  // read and released at once
  EXPECT_NE(refused().find("(rank 2 holds 300000)"), std::string::npos) << refused();
  ASSERT_TRUE(fabrics[2]->poll(0));
  EXPECT_NE(refused().find("(rank 2 holds 0)"), std::string::npos) << refused();
  ASSERT_TRUE(fabrics[2]->poll(0));
  EXPECT_EQ(refused(), "");
}

TEST(LocalTest, ReleasesMessagesToDeadRanksBeforeMemoryGrows) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  auto fabrics = local_threads(2, options);
  fabrics[1].reset();  // leaves
  for (int k = 0; k < 100; ++k) post(*fabrics[0], 500'000, 1);
}

TEST(LocalTest, FreesUnsentMessages) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int k = 0; k < 100; ++k) const Outgoing unsent = fabrics[0]->reserve(900'000);
}

TEST(LocalTest, TheRendezvousNamesMissingRanks) {
  LocalOptions options;
  options.join_timeout = std::chrono::milliseconds(50);
  try {
    join_local("test-nobody-" + std::to_string(getpid()), 0, 3, options);
    FAIL() << "no other rank has joined";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1, 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(join_local("test-nobody-" + std::to_string(getpid()), 1, 3, options), Error);
  EXPECT_THROW(join_local("x", 3, 3, options), InvalidArgument);
}

TEST(HeapTest, PiecesNeverOverlapAndAreMerged) {
  local::Region region = local::Region::create("test");
  constexpr std::uint64_t kStart = 4096;
  region.reserve(kStart);
  local::Heap heap(region, kStart, 1 << 26);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  std::mt19937 random(1);
  const auto next = [&](std::uint64_t below) { return random() % below; };
  for (int k = 0; k < 5000; ++k) {
    if (pieces.size() < 50 && next(2) == 0) {
      const std::uint64_t size = 40'000 + next(200'000);
      const std::uint64_t offset = heap.allocate(size, true);
      ASSERT_NE(offset, 0U);
      ASSERT_EQ(offset % 64, 0U);
      for (const auto& [other, length] : pieces)
        ASSERT_TRUE(offset + size <= other || other + length <= offset);
      std::memset(region.at(offset), 1, size);  // memory is reserved
      pieces.emplace_back(offset, size);
    } else if (!pieces.empty()) {
      const auto at = pieces.begin() + static_cast<std::ptrdiff_t>(next(pieces.size()));
      heap.free(at->first, at->second);
      pieces.erase(at);
    }
  }
  for (const auto& [offset, size] : pieces) heap.free(offset, size);
  EXPECT_EQ(heap.used(), 0U);
  EXPECT_EQ(heap.allocate(1 << 20, true), kStart);  // everything merged back
}

TEST(HeapTest, ReusesSmallPieces) {
  local::Region region = local::Region::create("test");
  local::Heap heap(region, 4096, 1 << 20);
  for (const std::uint64_t size : {1U, 64U, 65U, 1000U, 32768U}) {
    const std::uint64_t first = heap.allocate(size, true);
    const std::uint64_t second = heap.allocate(size, true);
    EXPECT_GE(std::max(first, second) - std::min(first, second), size);
    EXPECT_FALSE(heap.has_small(size));
    heap.free(first, size);
    EXPECT_TRUE(heap.has_small(size));
    EXPECT_EQ(heap.allocate(size, false), first);
    heap.free(first, size);
    heap.free(second, size);
  }
  EXPECT_EQ(heap.used(), 0U);
}

TEST(LocalTest, AForkedChildCannotUseTheFabric) {
  const auto fabrics = local_threads(2);
  const pid_t child = fork();
  if (child == 0) {
    try {
      fabrics[0]->reserve(8);
    } catch (const Error&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(fabrics[1]->alive(0));
}

TEST(LocalTest, AForkedChildLeavesItsParentsStateAlone) {
  const auto fabrics = local_threads(2);
  for (std::uint64_t k = 0; k < 40; ++k) {
    const Outgoing message = fabrics[0]->reserve(8);
    std::memcpy(message.bytes().data(), &k, 8);
    fabrics[0]->post(message, {}, 1);
  }
  std::vector<Arrival> held;
  for (int k = 0; k < 5; ++k) held.push_back(std::move(*fabrics[1]->poll(0)));
  const pid_t child = fork();
  if (child == 0) {
    try {
      fabrics[1]->poll(0);
    } catch (const Error&) {
      held.clear();  // the child's copies
      _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  for (int k = 0; k < 40; ++k)
    fabrics[0]->post(fabrics[0]->reserve(8), {}, 1);  // would reuse memory if the child had released it
  for (std::uint64_t k = 5; k < 40; ++k) held.push_back(std::move(*fabrics[1]->poll(0)));
  for (std::uint64_t k = 0; k < 40; ++k) EXPECT_EQ(std::memcmp(held[k].bytes().data(), &k, 8), 0) << k;
}

TEST(BoardTest, TheFirstProposalWins) {
  const auto fabrics = local_threads(4);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int64_t>> agreed(4, std::vector<std::int64_t>(500));
  for (std::size_t r = 0; r < 4; ++r)
    threads.emplace_back([&, r] {
      for (std::uint64_t key = 0; key < 500; ++key)
        agreed[r][key] = fabrics[r]->board().agree(key * 2, static_cast<std::int64_t>(r));
    });
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t key = 0; key < 500; ++key) {
    for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(agreed[r][key], agreed[0][key]);
    EXPECT_EQ(fabrics[0]->board().agreed(key * 2), agreed[0][key]);
  }
  EXPECT_FALSE(fabrics[0]->board().agreed(1'000'000));
}

TEST(BoardTest, OthersSeeTheStatus) {
  const auto fabrics = local_threads(2);
  Board& theirs = fabrics[0]->board();
  EXPECT_EQ(theirs.announced(1, 0), -1);
  EXPECT_EQ(theirs.waiting(1).peer, -1);
  EXPECT_EQ(theirs.posted(1).name, 0U);
  fabrics[1]->board().announce(0, 5);
  WaitStatus waiting;
  waiting.peer = 0;
  waiting.sequence = 9;
  fabrics[1]->board().publish(waiting);
  MessageHeader header;
  header.name = 77;
  fabrics[1]->post(fabrics[1]->reserve(0), header, 0);
  EXPECT_EQ(theirs.announced(1, 0), 5);
  EXPECT_EQ(theirs.waiting(1).sequence, 9U);
  EXPECT_EQ(theirs.posted(1).name, 77U);
}

}  // namespace
}  // namespace starling::fabric

#include "starling/fabric/local/local.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/heap.h"
#include "starling/fabric/local/layout.h"

// What is special about the local fabric: its memory and its rendezvous.

namespace starling {
namespace {

void post(Fabric& fabric, std::size_t bytes, Rank to) {
  fabric.post(fabric.reserve(bytes), {}, {&to, 1});
}

TEST(LocalTest, MemoryOfReadMessagesIsUsedAgain) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int k = 0; k < 1000; ++k) {  // a gigabyte through a megabyte
    post(*fabrics[0], 400'000, 1);
    ASSERT_TRUE(fabrics[1]->poll(0));
  }
}

TEST(LocalTest, AFullLimitNamesWhoHoldsWhat) {
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
  ASSERT_TRUE(fabrics[1]->poll(0));  // read and dropped at once
  post(*fabrics[0], 300'000, 1);
}

TEST(LocalTest, MessagesToTheDeadAreGivenUpBeforeMemoryGrows) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  auto fabrics = local_threads(2, options);
  fabrics[1].reset();  // leaves
  for (int k = 0; k < 100; ++k) post(*fabrics[0], 500'000, 1);
}

TEST(LocalTest, DroppedUnsentMessagesGoBack) {
  LocalOptions options;
  options.memory_limit = 1 << 20;
  const auto fabrics = local_threads(2, options);
  for (int k = 0; k < 100; ++k) const Outgoing unsent = fabrics[0]->reserve(900'000);
}

TEST(LocalTest, TheRendezvousNamesWhoDidNotCome) {
  LocalOptions options;
  options.join_timeout = std::chrono::milliseconds(50);
  try {
    join_local("test-nobody-" + std::to_string(getpid()), 0, 3, options);
    FAIL() << "nobody else is here";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1, 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(join_local("test-nobody-" + std::to_string(getpid()), 1, 3, options), Error);
  EXPECT_THROW(join_local("x", 3, 3, options), InvalidArgument);
}

TEST(HeapTest, PiecesNeverOverlapAndMergeAgain) {
  local::Region region = local::Region::create("test");
  constexpr std::uint64_t kStart = 4096;
  region.reserve(kStart);
  local::Heap heap(region, kStart, 1 << 24);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  std::mt19937 random(1);
  const auto next = [&](std::uint64_t below) { return random() % below; };
  for (int k = 0; k < 5000; ++k) {
    if (pieces.size() < 50 && next(2) == 0) {
      const std::uint64_t size = 1 + next(20'000);
      const std::uint64_t offset = heap.allocate(size, true);
      ASSERT_NE(offset, 0U);
      ASSERT_EQ(offset % 64, 0U);
      for (const auto& [other, length] : pieces)
        ASSERT_TRUE(offset + size <= other || other + length <= offset);
      std::memset(region.at(offset), 1, size);  // there is memory behind it
      pieces.emplace_back(offset, size);
    } else if (!pieces.empty()) {
      const auto at = pieces.begin() + static_cast<std::ptrdiff_t>(next(pieces.size()));
      heap.free(at->first);
      pieces.erase(at);
    }
  }
  for (const auto& [offset, size] : pieces) heap.free(offset);
  EXPECT_EQ(heap.used(), 0U);
  EXPECT_EQ(heap.allocate(1 << 20, true), kStart);  // everything merged back
}

}  // namespace
}  // namespace starling

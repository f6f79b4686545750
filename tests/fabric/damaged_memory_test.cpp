// Covers starling/fabric/local against damaged shared memory.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/message_lists.h"

// Another process may write anything to shared memory: readers throw an error that names the rank, and never
// access memory outside the region.

namespace starling::fabric::local {
namespace {

using testing::HasSubstr;

constexpr Rank kRanks = 2;

Regions make_regions() {
  Regions regions;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    auto region = std::make_shared<Region>(Region::create("test"));
    region->reserve(heap_offset(rank, kRanks));
    new (region->at(0)) Control;
    for (Rank to = 0; to < kRanks; ++to) new (region->at(chunk_offset(to))) Chunk;
    regions.push_back(std::move(region));
  }
  return regions;
}

/// Rank 1 is damaged or hostile, rank 0 reads.
class DamagedMemoryTest : public testing::Test {
 protected:
  Chunk& chunk() const { return *regions_[1]->as<Chunk>(chunk_offset(0)); }
  std::string error_of_poll() {
    try {
      if (const auto arrival = inbox_.poll(1); arrival && !arrival->bytes().empty())
        touched_ +=
            std::to_integer<int>(arrival->bytes().front()) + std::to_integer<int>(arrival->bytes().back());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Regions regions_ = make_regions();
  Inbox inbox_{0, regions_, [] { return true; }};
  LocalBoard board_{0, regions_};
  int touched_ = 0;
};

TEST_F(DamagedMemoryTest, AMessageOutsideTheRegionNamesItsSender) {
  MessageSlot& slot = chunk().slots[0];
  slot.header.bytes = Region::kSpan;
  slot.payload = 4096;
  EXPECT_THAT(error_of_poll(), HasSubstr("the shared memory of rank 1 is damaged"));
  slot.header.bytes = ~std::uint64_t{0} - 100;  // the sum overflows
  EXPECT_THAT(error_of_poll(), HasSubstr("rank 1"));
  slot.payload = ~std::uint64_t{0};
  slot.header.bytes = 2;
  EXPECT_THAT(error_of_poll(), HasSubstr("rank 1"));
  slot.payload = Region::kSpan - 2;
  EXPECT_EQ(error_of_poll(), "");
}

TEST_F(DamagedMemoryTest, AMessageListOutsideTheRegionNamesItsOwner) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    chunk().slots[i].payload = 4096;
    EXPECT_EQ(error_of_poll(), "");
  }
  for (const std::uint64_t next :
       {Region::kSpan, Region::kSpan - 64, ~std::uint64_t{63}, std::uint64_t{4097}}) {
    chunk().slots[kSlots].payload = next;
    EXPECT_THAT(error_of_poll(), HasSubstr("rank 1")) << next;
  }
}

TEST_F(DamagedMemoryTest, RandomSlotsAreReadOrRejected) {
  std::mt19937_64 random(7);
  const auto number = [&]() -> std::uint64_t {
    switch (random() % 5) {
      case 0:
        return random();
      case 1:
        return random() % Region::kSpan;
      case 2:
        return Region::kSpan - random() % 256;
      case 3:
        return random() % 4096 * 64;
      default:
        return ~(random() % 4096);
    }
  };
  int refused = 0;
  for (int k = 0; k < 6000; ++k) {
    // The reader's position is always in this chunk, also after it has followed a list to the next one.
    for (MessageSlot& slot : chunk().slots) {
      slot.header.bytes = number();
      slot.payload = number();
    }
    chunk().slots[kSlots].payload = random() % 2 == 0 ? chunk_offset(0) : Region::kSpan - random() % 64;
    const std::string text = error_of_poll();
    if (text.empty()) continue;
    ++refused;
    ASSERT_THAT(text, HasSubstr("rank 1"));
    if (random() % 4 != 0) continue;
    for (MessageSlot& slot : chunk().slots) slot.header.bytes = 8, slot.payload = 4096;
    chunk().slots[kSlots].payload = chunk_offset(0);
    ASSERT_EQ(error_of_poll(), "");
  }
  EXPECT_GT(refused, 500);
}

TEST_F(DamagedMemoryTest, OtherRanksCannotCorruptTheAllocator) {
  // Readers set flags in the owner's chunks; a hostile reader may write anything.
  Outbox outbox(1, kRanks, *regions_[1], 1 << 20, [](Rank) { return true; });
  std::mt19937_64 random(3);
  int full = 0;
  for (int k = 0; k < 2000; ++k) {
    try {
      const Outgoing message = outbox.reserve(random() % 5000);
      std::memset(message.bytes().data(), 1, message.bytes().size());
      outbox.post(message, {}, 0);
    } catch (const Error&) {
      ++full;  // unread messages use up the limit, and no more
    }
    auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(&chunk());
    for (int i = 0; i < 8; ++i) words[random() % (sizeof(Chunk) / 8)] = random();
  }
  EXPECT_GT(full, 0);
}

TEST_F(DamagedMemoryTest, AStatusWithAnInvalidRankIsRejected) {
  LocalBoard theirs(1, regions_);
  WaitStatus waiting;
  waiting.text.fill('x');  // without a terminating zero
  waiting.peer = 0;
  theirs.publish(waiting);
  EXPECT_EQ(std::strlen(board_.waiting(1).text.data()), waiting.text.size() - 1);
  for (const std::int64_t peer : {std::int64_t{2}, std::int64_t{-2}, std::int64_t{1} << 40}) {
    waiting.peer = peer;
    theirs.publish(waiting);
    try {
      board_.waiting(1);
      ADD_FAILURE() << "a rank " << peer;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the shared memory of rank 1 is damaged"));
    }
  }
}

TEST_F(DamagedMemoryTest, AShrinkableRegionIsRejected) {
  const Region region = Region::create("test");
  EXPECT_NE(ftruncate(region.descriptor(), 4096), 0);  // sealed
  EXPECT_NO_THROW(Region::adopt(Descriptor(dup(region.descriptor()))));
  Descriptor plain(memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(plain.get(), static_cast<off_t>(Region::kSpan)), 0);
  EXPECT_THROW(Region::adopt(std::move(plain)), Error);
  EXPECT_THROW(Region::adopt(Descriptor(dup(0))), Error);
}

TEST_F(DamagedMemoryTest, StepsOfManyFlocksAreNeverTooLow) {
  LocalBoard theirs(1, regions_);
  std::mt19937_64 random(11);
  std::vector<std::pair<std::uint64_t, Step>> last;
  for (std::uint64_t k = 1; k <= 300; ++k) {
    const std::uint64_t flock = random() | 1;
    for (Step step = 0; step < 3; ++step) theirs.announce(flock, step + static_cast<Step>(k));
    EXPECT_EQ(board_.announced(1, flock), static_cast<Step>(k) + 2);
    last.emplace_back(flock, static_cast<Step>(k) + 2);
    if (k % 3 != 0) theirs.retire(flock);  // the other flocks stay: more of them than there are slots
    for (const auto& [known, step] : last) ASSERT_GE(board_.announced(1, known), step) << k;
  }
  theirs.announce(last[2].first, 5000);  // a flock that has not retired
  EXPECT_GE(board_.announced(1, last[2].first), 5000);
  EXPECT_EQ(board_.announced(1, 0), -1);
}

TEST_F(DamagedMemoryTest, ManyRetiredFlocksKeepTheStepsOfTheLastOnesExact) {
  LocalBoard theirs(1, regions_);
  for (std::uint64_t flock = 1; flock <= 1000; ++flock) {
    theirs.announce(flock, static_cast<Step>(flock % 7));
    theirs.retire(flock);
  }
  for (std::uint64_t flock = 960; flock <= 1000; ++flock)
    EXPECT_EQ(board_.announced(1, flock), static_cast<Step>(flock % 7));
}

}  // namespace
}  // namespace starling::fabric::local

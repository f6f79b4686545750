#include "starling/flock/cell.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "starling/base/error.h"
#include "starling/fabric/forwarding.h"
#include "starling/fabric/local/local.h"

namespace starling::flock {
namespace {

using testing::HasSubstr;

/// Keeps track of exposed memory.
class ExposedMemory final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  std::uint64_t expose(std::size_t bytes) override {
    const std::uint64_t memory = ForwardingFabric::expose(bytes);
    now.insert({memory, bytes});
    return memory;
  }
  void withdraw(std::uint64_t memory, std::size_t bytes) override {
    EXPECT_EQ(now.erase({memory, bytes}), 1U) << memory;
    ForwardingFabric::withdraw(memory, bytes);
  }
  std::set<std::pair<std::uint64_t, std::size_t>> now;
};

/// One cell as seen by each of its parties, which have a fabric each.
class CellTest : public testing::Test {
 protected:
  static constexpr std::size_t kNumbers = 40;

  void make(std::size_t parties, std::size_t writers) {
    auto inner = local_threads(static_cast<Rank>(parties));
    std::vector<Rank> ranks;
    for (auto& fabric : inner) {
      ranks.push_back(static_cast<Rank>(ranks.size()));
      fabrics_.push_back(std::make_shared<ExposedMemory>(std::move(fabric)));
    }
    const std::uint64_t control =
        fabrics_[0]->ForwardingFabric::expose(Cell::control_bytes(parties, writers));
    for (std::size_t me = 0; me < parties; ++me)
      cells_.push_back(std::make_unique<Cell>(fabrics_[me], fabrics_[me]->exposed(0, control), ranks, writers,
                                              me, kNumbers * sizeof(int)));
    control_ = fabrics_[0]->exposed(0, control);
  }
  Cell& at(std::size_t party) { return *cells_[party]; }

  static void write(const Content& fresh, int value) {
    std::fill_n(reinterpret_cast<int*>(fresh.data), kNumbers, value);
    *fresh.p = 0.5 * value;
    *fresh.stamp = 100 + value;
  }
  /// Returns the value, or -1 if it is torn.
  static int read(const Cell::Held& held) {
    const int* numbers = reinterpret_cast<const int*>(held.data());
    const bool whole = std::count(numbers, numbers + kNumbers, numbers[0]) == kNumbers &&
                       held.p() == 0.5 * numbers[0] && held.stamp() == 100 + numbers[0];
    return whole ? numbers[0] : -1;
  }
  void replace(std::size_t party, int value) {
    at(party).replace([&](const Content& fresh) { write(fresh, value); });
  }
  static std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::vector<std::shared_ptr<ExposedMemory>> fabrics_;
  std::vector<std::unique_ptr<Cell>> cells_;
  std::byte* control_ = nullptr;
};

TEST_F(CellTest, IsEmptyAtFirst) {
  make(2, 1);
  for (const std::size_t party : {0, 1}) {
    EXPECT_FALSE(at(party).look());
    EXPECT_FALSE(at(party).take());
  }
  EXPECT_EQ(at(0).deposits(), 0U);
}

TEST_F(CellTest, AllPartiesSeeTheLastValueOfAnyWriter) {
  make(3, 2);
  for (const auto& [writer, value] : {std::pair<std::size_t, int>{0, 7}, {1, 8}, {1, 9}, {0, 10}}) {
    replace(writer, value);
    for (const std::size_t party : {0, 1, 2}) EXPECT_EQ(read(at(party).look()), value) << party;
  }
}

TEST_F(CellTest, AValueIsTakenOnce) {
  make(3, 1);
  replace(0, 7);
  const Cell::Held taken = at(2).take();
  EXPECT_FALSE(at(0).look());
  EXPECT_FALSE(at(1).take());
  for (int value = 8; value < 20; ++value) replace(0, value);
  EXPECT_EQ(read(taken), 7);  // a held value does not change
  EXPECT_EQ(read(at(1).take()), 19);
}

TEST_F(CellTest, WritersDoNotOverwriteHeldValues) {
  make(3, 1);
  replace(0, 1);
  const Cell::Held first = at(1).look();
  replace(0, 2);
  Cell::Held second = at(2).look();
  for (int value = 3; value < 30; ++value) replace(0, value);
  EXPECT_EQ(read(first), 1);
  EXPECT_EQ(read(second), 2);
  second = {};
  EXPECT_EQ(read(at(2).look()), 29);
}

TEST_F(CellTest, UsesAtMostOneBufferMoreThanPartiesAndReleasesAll) {
  make(3, 2);
  for (int value = 0; value < 100; ++value) {
    replace(0, value);
    const Cell::Held held = at(2).look();
    replace(1, value);
    replace(0, value);
  }
  EXPECT_LE(fabrics_[0]->now.size(), 4U);
  EXPECT_GE(fabrics_[0]->now.size(), 2U);
  EXPECT_FALSE(fabrics_[1]->now.empty());
  for (const std::size_t party : {0, 1, 2}) at(party).withdraw();
  for (const auto& fabric : fabrics_) EXPECT_TRUE(fabric->now.empty());
}

TEST_F(CellTest, AChangeSeesTheValueBefore) {
  make(2, 2);
  const auto add = [&](std::size_t party, int more) {
    at(party).change(
        [&](const Content& fresh, const Cell::Held& old) { write(fresh, more + (old ? read(old) : 1000)); });
  };
  add(0, 1);
  EXPECT_EQ(read(at(1).look()), 1001);
  add(1, 20);
  EXPECT_EQ(read(at(0).look()), 1021);
  at(0).take();
  add(1, 3);
  EXPECT_EQ(read(at(0).look()), 1003);
}

TEST_F(CellTest, AChangeIsRepeatedIfTheValueChangedMeanwhile) {
  make(2, 2);
  replace(0, 1);
  std::vector<int> seen;
  at(0).change([&](const Content& fresh, const Cell::Held& old) {
    seen.push_back(read(old));
    if (seen.size() == 1) replace(1, 50);
    write(fresh, read(old) + 1);
  });
  EXPECT_EQ(seen, (std::vector<int>{1, 50}));
  EXPECT_EQ(read(at(1).look()), 51);
}

TEST_F(CellTest, CountsTheDepositsOfOthersThanTheFirstWriter) {
  make(3, 3);
  replace(0, 1);
  EXPECT_EQ(at(0).deposits(), 0U);
  replace(1, 2);
  at(2).change([](const Content& fresh, const Cell::Held&) { write(fresh, 3); });
  at(0).take();
  for (const std::size_t party : {0, 1, 2}) EXPECT_EQ(at(party).deposits(), 2U);
}

// Another process may have written anything into the control memory.
TEST_F(CellTest, ReportsADamagedControlBlock) {
  make(2, 1);
  replace(0, 1);
  auto* published = reinterpret_cast<std::uint64_t*>(control_);
  const std::uint64_t good = *published;
  *published = 60'000;
  EXPECT_THAT(error_of([&] { at(1).look(); }), HasSubstr("a window of rank 0 is damaged: it has no buffer"));
  *published = good;
  EXPECT_EQ(read(at(1).look()), 1);
}

// The only party holds an old value and has published its other buffer.
TEST_F(CellTest, FailsRatherThanWaitsIfAllBuffersAreHeld) {
  make(1, 1);
  replace(0, 1);
  const Cell::Held held = at(0).look();
  replace(0, 2);
  EXPECT_THAT(error_of([&] { replace(0, 3); }), HasSubstr("all of its buffers are held"));
  EXPECT_EQ(read(held), 1);
}

TEST_F(CellTest, ThreadsLoseNoChangeAndReadOnlyWholeValues) {
  constexpr int kChanges = 3000;
  make(4, 2);
  replace(0, 0);
  std::atomic<int> writing{2};
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (const std::size_t writer : {0, 1})
    threads.emplace_back([&, writer] {
      for (int k = 0; k < kChanges; ++k)
        at(writer).change([](const Content& fresh, const Cell::Held& old) { write(fresh, read(old) + 1); });
      --writing;
    });
  for (const std::size_t reader : {2, 3})
    threads.emplace_back([&, reader] {
      for (int last = 0; writing > 0;) {
        const int value = read(at(reader).look());
        if (value < last) ++torn;
        last = value;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(read(at(3).look()), 2 * kChanges);
  EXPECT_EQ(at(0).deposits(), static_cast<std::uint64_t>(kChanges));
}

}  // namespace
}  // namespace starling::flock

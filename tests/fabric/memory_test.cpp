#include "starling/fabric/network/memory.h"

#include <cstring>
#include <gtest/gtest.h>

namespace starling::fabric::network {
namespace {

TEST(PoolTest, AlignsAndReusesMemory) {
  Pool pool(std::size_t{1} << 20);
  Memory first = pool.take(1000);
  std::byte* where = first.get();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(where) % 64, 0U);
  EXPECT_GE(pool.used(), 1000U);
  std::memset(where, 1, 1000);
  first.reset();
  EXPECT_EQ(pool.used(), 0U);
  EXPECT_EQ(pool.take(1000).get(), where);
  EXPECT_EQ(pool.take(990).get(), where) << "about the same size";
  EXPECT_NE(pool.take(5000).get(), where);
}

TEST(PoolTest, TheLimitCountsMemoryInUse) {
  Pool pool(10'000);
  const Memory most = pool.take(8000);
  ASSERT_TRUE(most);
  EXPECT_FALSE(pool.take(8000));
  EXPECT_TRUE(pool.take(100));
  EXPECT_TRUE(pool.take(0)) << "a message without bytes needs a place, too";
}

TEST(PoolTest, MemoryOutlivesThePool) {
  Memory kept;
  {
    Pool pool(10'000);
    kept = pool.take(100);
  }
  std::memset(kept.get(), 1, 100);
}

TEST(PoolTest, HugeBlocksWasteLittle) {
  Pool pool(std::size_t{1} << 40);
  const std::size_t wanted = (std::size_t{100} << 20) + 1;
  const Memory block = pool.take(wanted);
  EXPECT_LE(pool.used(), wanted + wanted / 8);
}

}  // namespace
}  // namespace starling::fabric::network

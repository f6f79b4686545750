#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <string>

#include "base/test_name.h"
#include "starling/topology/registry.h"

namespace {

std::atomic<std::int64_t> allocations{0};

// Not inlined, since GCC would take malloc and free for a mismatch of new and delete.
[[gnu::noinline]] void* allocate(std::size_t size) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void release(void* memory) noexcept {
  std::free(memory);
}

void* allocate_or_throw(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Replaces all forms for the whole program: sanitizers provide their own for forms that are missing.
void* operator new(std::size_t size) {
  return allocate_or_throw(size);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size);
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t /*size*/) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept {
  release(memory);
}
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept {
  release(memory);
}

namespace starling::topology {
namespace {

class AllocationTest : public testing::TestWithParam<std::string> {};

// Training asks for an exchange in every step, which must not allocate.
TEST_P(AllocationTest, ExchangesReuseTheirMemory) {
  const SchedulePtr schedule = make_schedule(GetParam(), 48, 3);
  Exchange exchange;
  // Warm up on all ranks, since the busiest one determines the size.
  for (Rank rank = 0; rank < 48; ++rank)
    for (Step step = 0; step < 100; ++step) schedule->exchange(step, rank, exchange);
  std::size_t heard = 0;
  const std::int64_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    schedule->exchange(i, static_cast<Rank>(i * 7 % 48), exchange);
    heard += exchange.sources.size();
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(heard + static_cast<std::size_t>(exchange.group.size()), 0u);
}

std::string allocation_name(const testing::TestParamInfo<std::string>& test) {
  return test_name(test.param);
}

INSTANTIATE_TEST_SUITE_P(Circulants, AllocationTest,
                         testing::Values("ring", "one-way-ring", "exponential", "symmetric-exponential",
                                         "d-equistatic", "u-equistatic", "one-peer-exponential",
                                         "one-peer-exponential(order=permuted)",
                                         "one-peer-exponential(order=random)", "k-peer-exponential(k=3)",
                                         "od-equidyn", "ceca(k=3)"),
                         allocation_name);
INSTANTIATE_TEST_SUITE_P(Matchings, AllocationTest,
                         testing::Values("one-peer-ring", "random-matching", "ou-equidyn", "ceca-1p"),
                         allocation_name);
INSTANTIATE_TEST_SUITE_P(Others, AllocationTest,
                         testing::Values("base(k=1)", "base(k=4)", "simple-base(k=2)", "hyper-hypercube(k=2)",
                                         "torus", "star", "fold-unfold", "aer(local=4)",
                                         "hierarchical(outer=ring,local=4)", "periodic(base,h=9)",
                                         "el-oracle(k=3)", "matcha(ring)", "one-peer-of(star)",
                                         "live(ring,members=[0..40])", "complete",
                                         "inner-outer-exponential(local=6)"),
                         allocation_name);

TEST(AllocationCounterTest, Counts) {
  const std::int64_t before = allocations;
  const auto schedule = make_schedule("ring", 4);
  EXPECT_GT(allocations - before, 0);
}

}  // namespace
}  // namespace starling::topology

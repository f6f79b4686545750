#include "starling/simulate/thread_pool.h"

#include <atomic>
#include <gtest/gtest.h>
#include <vector>

#include "starling/base/error.h"

namespace starling::simulate {
namespace {

TEST(ThreadPoolTest, CallsEveryNumberOnce) {
  for (const int threads : {1, 3, 40}) {
    ThreadPool pool(threads);
    for (const std::size_t count : {0, 1, 8, 9, 100, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      for (int round = 0; round < 50; ++round)
        pool.each(count, [&](std::size_t i) { calls[i].fetch_add(1); });
      for (const auto& one : calls) EXPECT_EQ(one.load(), 50);
    }
  }
}

TEST(ThreadPoolTest, ThrowsTheFirstErrorAndKeepsWorking) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.each(100,
                         [](std::size_t i) {
                           if (i == 50) throw Error("fifty");
                         }),
               Error);
  std::atomic<int> calls{0};
  pool.each(100, [&](std::size_t) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 100);
}

}  // namespace
}  // namespace starling::simulate

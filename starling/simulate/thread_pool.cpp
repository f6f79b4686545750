#include "starling/simulate/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace starling::simulate {
namespace {

constexpr std::uint32_t kAtOnce = 8;  // the number of indices that a thread takes at a time

constexpr std::uint64_t packed(std::uint64_t next, std::uint64_t end) {
  return next << 32 | end;
}

// Waits until the number has changed: spins for a while before it sleeps, because the next round is often a
// few microseconds away.
void wait_for_change(const std::atomic<std::uint32_t>& number, std::uint32_t seen) {
  constexpr auto kSpinTime = std::chrono::microseconds(50);
  const auto until = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int look = 0; look < 64; ++look)
      if (number.load(std::memory_order_acquire) != seen) return;
  } while (std::chrono::steady_clock::now() < until);
  number.wait(seen);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(static_cast<std::size_t>(std::max(1, threads))) {
  for (std::size_t i = 1; i < shares_.size(); ++i) threads_.emplace_back([this, i] { serve(i); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::work(std::size_t thread) {
  for (std::size_t k = 0; k < shares_.size(); ++k) {
    auto& share = shares_[(thread + k) % shares_.size()].next_and_end;
    std::uint64_t seen = share.load(std::memory_order_acquire);
    for (;;) {
      const auto first = static_cast<std::uint32_t>(seen >> 32);
      const auto end = static_cast<std::uint32_t>(seen);
      if (first >= end) break;
      const std::uint32_t last = std::min(end, first + kAtOnce);
      if (!share.compare_exchange_weak(seen, packed(last, end), std::memory_order_acquire)) continue;
      try {
        for (std::uint32_t i = first; i < last && !failed_.load(std::memory_order_relaxed); ++i) (*body_)(i);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
      }
      const std::uint32_t taken = last - first;
      if (left_.fetch_sub(taken, std::memory_order_acq_rel) == taken) left_.notify_one();
      seen = share.load(std::memory_order_acquire);
    }
  }
}

void ThreadPool::serve(std::size_t thread) {
  for (std::uint32_t seen = 0;;) {
    wait_for_change(round_, seen);
    seen = round_.load();
    if (stopping_) return;
    work(thread);
  }
}

void ThreadPool::each(std::size_t count, const std::function<void(std::size_t)>& body) {
  body_ = &body;
  left_.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
  for (std::size_t i = 0; i < shares_.size(); ++i)
    shares_[i].next_and_end.store(packed(count * i / shares_.size(), count * (i + 1) / shares_.size()),
                                  std::memory_order_release);
  if (count > kAtOnce && !threads_.empty()) {
    round_.fetch_add(1);
    round_.notify_all();
  }
  work(0);
  for (std::uint32_t left = left_.load(std::memory_order_acquire); left > 0;
       left = left_.load(std::memory_order_acquire))
    wait_for_change(left_, left);
  if (!failed_.exchange(false)) return;
  std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace starling::simulate

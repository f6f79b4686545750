#include "starling/simulate/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace starling {
namespace {

constexpr std::size_t kAtOnce = 8;  // numbers that a thread takes at a time

// Waits until the number is another: the next round is often a few microseconds away, so it looks for a while
// before it sleeps.
template <typename T>
void wait_for_change(const std::atomic<T>& number, T seen) {
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
    Share& share = shares_[(thread + k) % shares_.size()];
    for (;;) {
      const std::size_t first = share.next.fetch_add(kAtOnce);
      if (first >= share.end) break;
      try {
        for (std::size_t i = first; i < std::min(share.end, first + kAtOnce); ++i) (*body_)(i);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
        return;
      }
    }
  }
}

void ThreadPool::serve(std::size_t thread) {
  for (std::uint32_t seen = 0;;) {
    wait_for_change(round_, seen);
    seen = round_.load();
    if (stopping_) return;
    work(thread);
    if (working_.fetch_sub(1) == 1) working_.notify_one();
  }
}

void ThreadPool::each(std::size_t count, const std::function<void(std::size_t)>& body) {
  body_ = &body;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next = count * i / shares_.size();
    shares_[i].end = count * (i + 1) / shares_.size();
  }
  const bool shared = count > kAtOnce && !threads_.empty();
  if (shared) {
    working_ = static_cast<std::uint32_t>(threads_.size());
    round_.fetch_add(1);
    round_.notify_all();
  }
  work(0);
  if (shared)
    for (std::uint32_t left = working_.load(); left > 0; left = working_.load())
      wait_for_change(working_, left);
  if (!failed_.exchange(false)) return;
  std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace starling

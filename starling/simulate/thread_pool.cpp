#include "starling/simulate/thread_pool.h"

#include <algorithm>
#include <utility>

namespace starling {
namespace {

constexpr std::size_t kAtOnce = 8;  // numbers that a thread takes at a time

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::work() {
  for (;;) {
    const std::size_t first = next_.fetch_add(kAtOnce);
    if (first >= count_) return;
    try {
      for (std::size_t i = first; i < std::min(count_, first + kAtOnce); ++i) (*body_)(i);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      return;
    }
  }
}

void ThreadPool::serve() {
  for (std::uint32_t seen = 0;;) {
    round_.wait(seen);
    seen = round_.load();
    if (stopping_) return;
    work();
    if (working_.fetch_sub(1) == 1) working_.notify_one();
  }
}

void ThreadPool::each(std::size_t count, const std::function<void(std::size_t)>& body) {
  body_ = &body;
  count_ = count;
  next_ = 0;
  const bool shared = count > kAtOnce && !threads_.empty();
  if (shared) {
    working_ = static_cast<std::uint32_t>(threads_.size());
    round_.fetch_add(1);
    round_.notify_all();
  }
  work();
  if (shared)
    for (std::uint32_t left = working_.load(); left > 0; left = working_.load()) working_.wait(left);
  if (!failed_.exchange(false)) return;
  std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace starling

#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "starling/base/floors.h"

namespace starling::simulate {

/// Threads that divide the indices 0 .. count-1 of each call among them. A call waits for the indices that
/// other threads have taken, never for threads: one that gets no core on a busy machine takes no indices, and
/// the caller does its share.
class ThreadPool {
 public:
  /// `threads` is the total number, including the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls body(i) for every i below `count` < 2^32, in any order; throws the first error that a call throws.
  void each(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  void work(std::size_t thread);
  void serve(std::size_t thread);

  /// A thread's own share: the same indices in every call, so that their data stays in its cache; a thread
  /// that has finished helps the others. The next index and the end are one word: a thread whose
  /// compare-and-swap succeeds has taken indices of the current call, however long it slept before.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> next_and_end{0};
  };

  std::vector<std::thread> threads_;
  std::atomic<std::uint32_t> round_{0};
  std::vector<Share> shares_;
  std::atomic<std::uint32_t> left_{0};  // the number of indices not done yet
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  const std::function<void(std::size_t)>* body_ = nullptr;  // read by threads that have taken indices
  std::atomic<bool> stopping_{false};
};

}  // namespace starling::simulate

#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace starling {

/// Threads that share the numbers 0 .. count-1 among them, again and again.
class ThreadPool {
 public:
  /// So many threads in all, the caller's included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls body(i) for every number, in any order; throws the first error that a call throws.
  void each(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  void work(std::size_t thread);
  void serve(std::size_t thread);

  /// A thread's own share, the same numbers every time, so that what belongs to them stays in its cache; who
  /// is done helps the others.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  std::vector<std::thread> threads_;
  std::atomic<std::uint32_t> round_{0};
  std::vector<Share> shares_;
  std::atomic<std::uint32_t> working_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  bool stopping_ = false;
};

}  // namespace starling

#include "starling/base/forks.h"

#include <atomic>
#include <pthread.h>

namespace starling {
namespace {

std::atomic<int>& fork_count() {
  static std::atomic<int> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_count()++; });
  static_cast<void>(registered);
  return count;
}

}  // namespace

int forks_so_far() {
  return fork_count().load(std::memory_order_relaxed);
}

}  // namespace starling

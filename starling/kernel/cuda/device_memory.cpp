#include "starling/kernel/cuda/device_memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "starling/base/error.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/on_device.h"

namespace starling::kernel::cuda {
namespace {

/// A pool of free marks, allocated by the page and never returned to the system.
class Marks {
 public:
  bool* take() {
    while (true) {
      if (bool* mark = pop()) {
        *mark = false;
        return mark;
      }
      add_page();
    }
  }
  void give_back(bool* mark) {
    const std::lock_guard lock(mutex_);
    free_.push_back(mark);
  }
  // Called without the lock: the allocation may wait for a stream that is about to return a mark.
  void add_page() {
    constexpr std::size_t kMarks = 4096;
    void* page = nullptr;
    check(cudaHostAlloc(&page, kMarks * sizeof(bool), cudaHostAllocPortable | cudaHostAllocMapped),
          "cudaHostAlloc");
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < kMarks; ++i) free_.push_back(static_cast<bool*>(page) + i);
  }
  bool has_some() {
    const std::lock_guard lock(mutex_);
    return !free_.empty();
  }

 private:
  bool* pop() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    bool* mark = free_.back();
    free_.pop_back();
    return mark;
  }

  std::mutex mutex_;
  std::vector<bool*> free_;
};

Marks& marks() {
  // never destroyed: work that returns marks may outlast static objects
  static auto* const instance = new Marks;
  return *instance;
}

// Calls `enqueue` on the release stream, ordered after all work in this context. If that fails, the device is
// lost or the program is ending, and the memory is gone anyway.
template <typename Enqueue>
void release(const DeviceContext& allocated, const Enqueue& enqueue) noexcept {
  try {
    const DeviceContext last = release_context(allocated.device);
    order(allocated, last);
    if (current_context().device == allocated.device) order(current_context(), last);
    enqueue(OnDevice(last));
  } catch (const Error&) {
  }
}

}  // namespace

std::shared_ptr<void> allocate(std::size_t bytes) {
  const OnDevice here;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* address = nullptr;
  const cudaError_t result = cudaMallocFromPoolAsync(&address, size, here.pool(), here.stream());
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, so that the next call does not report it
    throw_out_of_memory(size);
  }
  check(result, "cudaMallocFromPoolAsync");
  std::shared_ptr<void> memory(address, [context = current_context()](void* one) {
    release(context,
            [one](const OnDevice& last) { check(cudaFreeAsync(one, last.stream()), "cudaFreeAsync"); });
  });
  check(cudaMemsetAsync(address, 0, size, here.stream()), "cudaMemsetAsync");
  return memory;
}

std::shared_ptr<bool> make_mark() {
  const OnDevice prepared;
  return {marks().take(), [context = current_context()](bool* mark) {
            release(context, [mark](const OnDevice& last) {
              const auto give_back = [](void* one) { marks().give_back(static_cast<bool*>(one)); };
              check(cudaLaunchHostFunc(last.stream(), give_back, mark), "cudaLaunchHostFunc");
            });
          }};
}

void prepare_marks() {
  if (!marks().has_some()) marks().add_page();
}

}  // namespace starling::kernel::cuda

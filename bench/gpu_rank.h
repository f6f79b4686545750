#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/mman.h>

#include "starling/base/error.h"
#include "starling/base/stopwatch.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/device.h"
#include "starling/method/driver.h"

// Helpers that the processes of `starling bench gpu` share.

namespace starling::bench {

inline constexpr std::chrono::seconds kGpuLimit{300};  // for a case; a driver may take a while to start

/// A T in memory that this process shares with its forks.
template <typename T>
class Shared {
 public:
  Shared() {
    void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Error("cannot share memory between processes");
    value_ = new (memory) T;
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

/// float32 elements in device memory, initially zero.
inline kernel::OwnedBuffer on_gpu(std::size_t elements) {
  return {DType::float32, elements, MemoryKind::cuda};
}

/// Gives the calling thread a stream of its own.
inline void use_own_stream() {
  kernel::device_context() = {0, kernel::device().new_stream()};
}

/// Seconds per call by this rank's clock, until the device has finished.
template <typename Body>
double seconds_each(int repeats, const Body& body) {
  kernel::device().synchronize();
  const double seconds = seconds_of([&] {
    for (int i = 0; i < repeats; ++i) body();
    kernel::device().synchronize();
  });
  return seconds / repeats;
}

/// A rank whose messages are in device memory.
struct GpuRank {
  std::shared_ptr<Fabric> fabric;
  Flock flock;

  GpuRank(const std::string& job, Rank rank, Rank size)
      : fabric(with_device_messages(join_local(job, rank, size), job)), flock(fabric) {
    use_own_stream();
    flock.set_timeout(kGpuLimit);
  }
};

/// dsgd-awc with momentum on vectors of zeros, in buckets of equal lengths. Every rank has one source.
struct GpuTraining {
  GpuRank rank;
  kernel::OwnedBuffer x, gradient;
  method::Driver driver;

  GpuTraining(const std::string& job, Rank number, Rank size, std::size_t elements, std::size_t buckets = 1);

  void step() {
    driver.begin();
    driver.finish();
  }
};

}  // namespace starling::bench

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

// A CUDA machine of host memory, for tests of starling/kernel/cuda/ without a GPU. Streams are queues:
// nothing runs before a call waits for a stream (or run_streams()); then operations of all streams run on
// that thread, in a random order that the streams, events and flags allow. Device pointers are host pointers.

namespace fake_cuda {

inline constexpr int kDevices = 2;
inline constexpr std::size_t kMemory = std::size_t{1} << 30;  // of each device, for cuMemCreate()
inline constexpr std::size_t kUnit = std::size_t{2} << 20;

/// Makes the next call of this function fail with this error.
void fail_next(const std::string& function, int error);
/// Sets whether devices can read each other's memory; by default they can.
void set_peer_access(bool can);
/// The stream that counts as being captured into a graph.
inline CUstream captured = nullptr;
/// Runs all operations that need not wait.
void run_streams();
/// The number of operations that have not run, on all streams.
std::size_t pending();
/// The number of memory handles and mapped or reserved address ranges that have not been released.
std::size_t handles();
std::size_t ranges();
/// Bytes allocated by cudaMallocFromPoolAsync() and not freed.
std::size_t pool_bytes();

// For driver.cpp and runtime.cpp.

/// Runs and returns true; returns false, to be tried again, while it has to wait.
using Operation = std::function<bool()>;

/// Device memory, which lives as long as a handle or a mapping.
struct Allocation {
  ~Allocation();
  int file = -1;
  std::size_t size = 0;
  int device = 0;
};
struct Range {
  std::size_t size = 0;
  std::shared_ptr<Allocation> mapped;
};

struct Machine {
  static Machine& instance();

  /// Returns the error set for the next call of this function, and resets it to success.
  int take_failure(const std::string& function);
  /// The stream of this handle on the thread's device; null if it belongs to another device, or if no device
  /// is current.
  CUstream_st* stream(CUstream handle);
  void enqueue(CUstream_st* stream, Operation operation);
  /// Runs operations until the stream is empty.
  void finish(CUstream_st* stream);
  /// Returns whether any operation ran.
  bool run_some();

  std::recursive_mutex mutex;  // guards the members below
  std::map<std::string, int> failures;
  bool peer_access = true;
  std::vector<std::unique_ptr<CUstream_st>> streams;  // the null streams of all devices come first
  std::minstd_rand random;
  std::map<std::pair<int, const void*>, Launcher> kernels;  // by device
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Allocation>> allocations;
  std::map<std::uint64_t, std::weak_ptr<Allocation>> files;  // by inode
  CUmemGenericAllocationHandle next_handle = 1;
  std::map<CUdeviceptr, Range> ranges;
  std::map<CUdeviceptr, std::size_t> registered;
  std::size_t used[kDevices] = {};
  std::map<void*, std::size_t> pool;

 private:
  Machine();
};

/// The calling thread's device, or -1.
int current_device();

}  // namespace fake_cuda

struct CUctx_st {
  int device;
};
struct CUstream_st {
  int device;
  std::deque<fake_cuda::Operation> operations;
};
struct CUevent_st {
  struct Record {
    bool happened = false;
    std::chrono::steady_clock::time_point when{};
  };
  int device;
  bool times;
  std::shared_ptr<Record> record;
  CUstream_st* stream = nullptr;  // the stream that recorded it
};

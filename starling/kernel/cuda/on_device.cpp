#include "starling/kernel/cuda/on_device.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "starling/kernel/cuda/device_memory.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/kernels.h"

namespace starling::kernel::cuda {
namespace {

DeviceContext& (*thread_context)() = nullptr;

// The number of streams that scratch memory is allocated for at a time.
constexpr std::size_t kStreamsAtATime = 256;

struct Prepared {
  std::once_flag once;
  std::atomic<bool> is_ready{false};
  CUcontext context = nullptr;  // the device's primary context, which all libraries share; never released
  cudaMemPool_t pool = nullptr;
  cudaStream_t releases = nullptr;
  std::mutex event_mutex;
  // for order(): a wait refers to the event as recorded when the wait was enqueued
  cudaEvent_t event = nullptr;
  std::mutex scratch_mutex;  // of what follows
  std::map<std::pair<cudaStream_t, std::size_t>, Scratch*> of_stream;
  Scratch* next = nullptr;
  std::size_t left = 0;
};

// One per device; never destroyed, since threads may still work when the program ends.
std::vector<Prepared>& all_prepared() {
  static auto* const instance = [] {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return new std::vector<Prepared>(static_cast<std::size_t>(count));
  }();
  return *instance;
}

Prepared& prepared_at(int device) {
  std::vector<Prepared>& all = all_prepared();
  if (device < 0 || static_cast<std::size_t>(device) >= all.size())
    throw InvalidArgument("there is no CUDA device " + std::to_string(device) + "; this process has " +
                          std::to_string(all.size()) + ", numbered from 0");
  return all[static_cast<std::size_t>(device)];
}

void allocate_scratch(Prepared& prepared) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, kStreamsAtATime * sizeof(Scratch)), "cudaMalloc");
  prepared.next = static_cast<Scratch*>(memory);
  prepared.left = kStreamsAtATime;
}

// A pool that gives memory freed on one stream to another only if it is free by then. Otherwise the other
// stream would wait for the first, which may wait for a flag.
cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  int dependencies = 0;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &dependencies),
        "cudaMemPoolSetAttribute");
  std::uint64_t kept = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept), "cudaMemPoolSetAttribute");
  return pool;
}

// Call it with the device's context current.
void prepare(Prepared& prepared, int device) {
  load_kernels();
  prepare_marks();
  allocate_scratch(prepared);
  prepared.pool = make_pool(device);
  check(cudaStreamCreateWithFlags(&prepared.releases, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreateWithFlags(&prepared.event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

}  // namespace

void set_context_function(DeviceContext& (*context)()) {
  thread_context = context;
}

const DeviceContext& current_context() {
  return thread_context();
}

int device_count() {
  return static_cast<int>(all_prepared().size());
}

bool is_prepared(int device) {
  const std::vector<Prepared>& all = all_prepared();
  return device >= 0 && static_cast<std::size_t>(device) < all.size() &&
         all[static_cast<std::size_t>(device)].is_ready.load(std::memory_order_acquire);
}

OnDevice::OnDevice(const DeviceContext& context)
    : device_(context.device), stream_(static_cast<cudaStream_t>(context.stream)) {
  Prepared& prepared = prepared_at(device_);
  check(driver().cuCtxGetCurrent_(&before_), "cuCtxGetCurrent");
  const auto use = [&](CUcontext one) {
    if (one == before_) return;
    check(driver().cuCtxSetCurrent_(one), "cuCtxSetCurrent");
    changed_ = true;
  };
  try {
    std::call_once(prepared.once, [&] {
      CUdevice number = 0;
      check(driver().cuDeviceGet_(&number, device_), "cuDeviceGet");
      if (prepared.context == nullptr)
        check(driver().cuDevicePrimaryCtxRetain_(&prepared.context, number), "cuDevicePrimaryCtxRetain");
      use(prepared.context);
      prepare(prepared, device_);
      prepared.is_ready.store(true, std::memory_order_release);
    });
    if (!changed_) use(prepared.context);
  } catch (...) {
    if (changed_) driver().cuCtxSetCurrent_(before_);
    throw;
  }
}

OnDevice::~OnDevice() {
  if (changed_) driver().cuCtxSetCurrent_(before_);
}

Scratch* OnDevice::scratch() const {
  Prepared& prepared = prepared_at(device_);
  const std::lock_guard lock(prepared.scratch_mutex);
  // This handle stands for a different stream in every thread.
  const std::size_t thread =
      stream_ == cudaStreamPerThread ? std::hash<std::thread::id>()(std::this_thread::get_id()) : 0;
  Scratch*& found = prepared.of_stream[{stream_, thread}];
  if (found == nullptr) {
    if (prepared.left == 0) allocate_scratch(prepared);
    found = prepared.next++;
    --prepared.left;
  }
  return found;
}

cudaMemPool_t OnDevice::pool() const {
  return prepared_at(device_).pool;
}

void OnDevice::launch(const void* kernel, unsigned blocks, unsigned threads, void** arguments) const {
  check(cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream_), "cudaLaunchKernel");
}

void order(const DeviceContext& earlier, const DeviceContext& later) {
  if (earlier == later) return;
  Prepared& prepared = prepared_at(earlier.device);
  const std::lock_guard lock(prepared.event_mutex);
  {
    const OnDevice there(earlier);
    check(cudaEventRecord(prepared.event, there.stream()), "cudaEventRecord");
  }
  const OnDevice here(later);
  check(cudaStreamWaitEvent(here.stream(), prepared.event, 0), "cudaStreamWaitEvent");
}

DeviceContext release_context(int device) {
  const OnDevice prepared({device, nullptr});
  return {device, prepared_at(device).releases};
}

}  // namespace starling::kernel::cuda

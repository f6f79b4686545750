#include "starling/kernel/cuda/cuda_device.h"

#include <array>

#include "starling/base/error.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/on_device.h"
#include "starling/kernel/cuda/shared_memory.h"

namespace starling::kernel::cuda {
namespace {

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// The free memory of a device. Other libraries of the process may not have used the device yet, so its
// context is created just for the query.
std::size_t free_bytes(CUdevice device) {
  CUcontext context = nullptr, before = nullptr;
  check(driver().cuDevicePrimaryCtxRetain_(&context, device), "cuDevicePrimaryCtxRetain");
  std::size_t free = 0, total = 0;
  CUresult result = driver().cuCtxGetCurrent_(&before);
  if (result == CUDA_SUCCESS) result = driver().cuCtxSetCurrent_(context);
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemGetInfo_(&free, &total);
    driver().cuCtxSetCurrent_(before);
  }
  driver().cuDevicePrimaryCtxRelease_(device);
  check(result, "cuMemGetInfo");
  return free;
}

// The address at which a device reaches a flag in host memory.
CUdeviceptr address_of(const Flag& flag) {
  static_assert(sizeof(Flag) == sizeof(std::uint32_t) && Flag::is_always_lock_free);
  return reinterpret_cast<CUdeviceptr>(&flag);
}

void check_number(std::uint32_t number) {
  if (number >= kLost)
    throw InvalidArgument("a flag's numbers stay below " + std::to_string(kLost) + ", and this is " +
                          std::to_string(number));
}

// Lets this thread ask for events while it or another thread captures a stream into a graph; otherwise CUDA
// would end the capture.
class BesideCapture {
 public:
  BesideCapture() {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~BesideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// An event, which belongs to one device.
struct CudaMoment {
  explicit CudaMoment(int of_device) : device(of_device) {
    check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  }
  ~CudaMoment() {
    try {
      const OnDevice there({device, nullptr});
      cudaEventDestroy(event);
    } catch (const Error&) {  // the device is lost
    }
  }
  CudaMoment(const CudaMoment&) = delete;
  CudaMoment& operator=(const CudaMoment&) = delete;

  int device;
  cudaEvent_t event = nullptr;
};

}  // namespace

CudaDevice::CudaDevice() {
  if (device_count() == 0) throw Error("the CUDA driver finds no device");
}

std::string CudaDevice::version() const {
  int of_driver = 0, of_runtime = 0;
  check(cudaDriverGetVersion(&of_driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&of_runtime), "cudaRuntimeGetVersion");
  return "CUDA driver " + version_text(of_driver) + ", runtime " + version_text(of_runtime);
}

std::vector<DeviceInfo> CudaDevice::devices() const {
  std::vector<DeviceInfo> all;
  for (int number = 0; number < device_count(); ++number) {
    CUdevice device = 0;
    check(driver().cuDeviceGet_(&device, number), "cuDeviceGet");
    std::array<char, 256> text{};
    check(driver().cuDeviceGetName_(text.data(), static_cast<int>(text.size()), device), "cuDeviceGetName");
    DeviceInfo info;
    info.name = text.data();
    check(driver().cuDeviceTotalMem_(&info.bytes, device), "cuDeviceTotalMem");
    info.bytes_free = free_bytes(device);
    std::vector<std::string> peers;
    for (int other = 0; other < device_count(); ++other) {
      int can = 0;
      if (other != number) check(cudaDeviceCanAccessPeer(&can, number, other), "cudaDeviceCanAccessPeer");
      if (can != 0) peers.push_back(std::to_string(other));
    }
    info.peers = join_words(peers);
    all.push_back(std::move(info));
  }
  return all;
}

Device::SharedMemory CudaDevice::create_shared(std::size_t bytes) {
  const OnDevice here;
  return create_memory(here.device(), bytes);
}

void* CudaDevice::map_shared(Descriptor descriptor, std::size_t bytes) {
  const OnDevice here;
  return map_memory(here.device(), std::move(descriptor), bytes);
}

void CudaDevice::release_shared(void* address, std::size_t bytes) noexcept {
  unmap_memory(address, bytes);
}

void CudaDevice::register_flags(void* memory, std::size_t bytes) {
  const OnDevice here;
  check(
      driver().cuMemHostRegister_(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
      "cuMemHostRegister");
  CUdeviceptr address = 0;
  const CUresult result = driver().cuMemHostGetDevicePointer_(&address, memory, 0);
  if (result != CUDA_SUCCESS || address != reinterpret_cast<CUdeviceptr>(memory)) {
    driver().cuMemHostUnregister_(memory);
    check(result, "cuMemHostGetDevicePointer");
    throw Error("CUDA device " + std::to_string(here.device()) +
                " cannot use registered host memory at its address on the host, which flags need");
  }
  const std::lock_guard lock(mutex_);
  registered_[memory] = here.device();
}

void CudaDevice::unregister_flags(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = registered_.find(memory);
  if (found == registered_.end()) return;
  try {
    const OnDevice there({found->second, nullptr});
    driver().cuMemHostUnregister_(memory);
  } catch (const Error&) {  // the device is lost, and its registrations with it
  }
  registered_.erase(found);
}

void CudaDevice::wait(const Flag& flag, std::uint32_t number) {
  check_number(number);
  const OnDevice here;
  check(driver().cuStreamWaitValue32_(here.stream(), address_of(flag), number, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue32");
}

void CudaDevice::write(Flag& flag, std::uint32_t number) {
  check_number(number);
  const OnDevice here;
  check(
      driver().cuStreamWriteValue32_(here.stream(), address_of(flag), number, CU_STREAM_WRITE_VALUE_DEFAULT),
      "cuStreamWriteValue32");
}

Stream CudaDevice::new_stream() {
  const OnDevice here;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void CudaDevice::order_after(const DeviceContext& other) {
  order(other, current_context());
}

void CudaDevice::synchronize() {
  const OnDevice here;
  check(cudaStreamSynchronize(here.stream()), "cudaStreamSynchronize");
}

std::string CudaDevice::failure() const {
  try {
    for (int device = 0; device < device_count(); ++device) {
      if (!is_prepared(device)) continue;  // this must not be its first use
      const OnDevice here(release_context(device));
      const cudaError_t result = cudaStreamQuery(here.stream());
      const bool capturing =
          result >= cudaErrorStreamCaptureUnsupported && result <= cudaErrorStreamCaptureWrongThread;
      if (result != cudaErrorNotReady && !capturing) check(result, "cudaStreamQuery");
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void CudaDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  const OnDevice here;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, here.stream()), "cudaMemcpyAsync");
}

void CudaDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  const OnDevice here;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, here.stream()), "cudaMemcpyAsync");
}

std::shared_ptr<std::byte> CudaDevice::allocate_pinned(std::size_t bytes) {
  const OnDevice here;
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return {static_cast<std::byte*>(memory), [device = here.device()](std::byte* kept) {
            try {
              const OnDevice there({device, nullptr});
              cudaFreeHost(kept);
            } catch (const Error&) {  // the device is lost
            }
          }};
}

bool CudaDevice::capturing() const {
  const OnDevice here;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t result = cudaStreamIsCapturing(here.stream(), &status);
  if (result != cudaErrorStreamCaptureImplicit) check(result, "cudaStreamIsCapturing");
  // The error means the default stream while others are captured, which must not be used then either.
  if (result != cudaSuccess) cudaGetLastError();
  return result != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

Device::Moment CudaDevice::mark_moment() {
  const OnDevice here;
  auto moment = std::make_shared<CudaMoment>(here.device());
  check(cudaEventRecord(moment->event, here.stream()), "cudaEventRecord");
  return moment;
}

bool CudaDevice::reached(const Moment& moment) {
  const auto& kept = *static_cast<const CudaMoment*>(moment.get());
  const OnDevice there({kept.device, nullptr});
  const BesideCapture beside;
  const cudaError_t result = cudaEventQuery(kept.event);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // clears it
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

double CudaDevice::seconds_between(const Moment& begin, const Moment& end) {
  const auto event = [](const Moment& moment) { return static_cast<const CudaMoment*>(moment.get())->event; };
  const OnDevice there({static_cast<const CudaMoment*>(begin.get())->device, nullptr});
  const BesideCapture beside;
  for (const Moment& moment : {begin, end})
    check(cudaEventSynchronize(event(moment)), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event(begin), event(end)), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) / 1000;
}

}  // namespace starling::kernel::cuda

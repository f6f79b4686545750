#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/codec_kernels.h"
#include "starling/kernel/device_context.h"
#include "starling/kernel/flag.h"

// Devices (GPUs). The core does not link CUDA: the library libstarling_cuda is loaded when a buffer in CUDA
// memory is first used. Tests replace it with a device of their own.

namespace starling::kernel {

/// One device, as `starling info` shows it.
struct DeviceInfo {
  std::string name;
  std::size_t bytes = 0;
  std::size_t bytes_free = 0;
  std::string peers;  // the devices whose memory this one can map
};

/// The devices of this process. Functions without a stream argument use the calling thread's
/// device_context(). Errors of the device's library are thrown as Error with the library's name for them.
/// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  /// Driver and library versions, for messages.
  virtual std::string version() const = 0;
  virtual std::vector<DeviceInfo> devices() const = 0;

  /// Device memory that other processes can map through a file descriptor.
  struct SharedMemory {
    void* address = nullptr;
    std::size_t bytes = 0;  // rounded up to the device's granularity
    Descriptor descriptor;
  };
  /// Throws Error with the bytes needed and the bytes free if there is not enough memory.
  virtual SharedMemory create_shared(std::size_t bytes) = 0;
  /// Maps a peer's memory for reading. `bytes` is SharedMemory::bytes.
  virtual void* map_shared(Descriptor descriptor, std::size_t bytes) = 0;
  /// Undoes a mapping or frees memory, on which all work must have ended.
  virtual void release_shared(void* address, std::size_t bytes) noexcept = 0;

  /// Makes flags in this range of host memory accessible to the device.
  virtual void register_flags(void* memory, std::size_t bytes) = 0;
  virtual void unregister_flags(void* memory) noexcept = 0;
  /// Work enqueued from now on waits until the flag, with its kLost bit, is at least `number`.
  virtual void wait(const Flag& flag, std::uint32_t number) = 0;
  /// Sets the flag to `number` when the work enqueued so far has ended; every reader of the number then sees
  /// what that work wrote.
  virtual void write(Flag& flag, std::uint32_t number) = 0;

  /// A new stream of the calling thread's device, besides its default stream. It lives as long as the device.
  virtual Stream new_stream() = 0;
  /// Work enqueued on this thread's stream from now on waits for the work enqueued on `other` so far.
  virtual void order_after(const DeviceContext& other) = 0;
  /// Blocks until all work of this thread's stream has ended.
  virtual void synchronize() = 0;
  /// The error after which a device does no work of this process any more, and which every later call
  /// reports, too; empty if there is none. Does not block, and uses no device that was not used before.
  virtual std::string failure() const = 0;
  /// Copies between host and device memory, in the order of this thread's stream; the host memory must stay
  /// valid until the copy has ended (synchronize()).
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  /// Host memory that copy_to_host() writes while the program continues; copies to other memory may wait for
  /// the stream. Frees itself. Throws Error if there is not enough.
  virtual std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) = 0;

  /// Whether this thread's stream is being captured into a graph: what is enqueued runs later, perhaps often.
  virtual bool capturing() const = 0;
  /// A point in the order of a stream, reached when the work before it has ended.
  using Moment = std::shared_ptr<void>;
  /// The point after the work enqueued on this thread's stream so far.
  virtual Moment mark_moment() = 0;
  /// Whether a moment is reached; does not wait. Throws Error if the work before it has failed.
  virtual bool reached(const Moment& moment) = 0;
  /// Seconds on the device's clock between two moments of one device; blocks until both are reached.
  virtual double seconds_between(const Moment& begin, const Moment& end) = 0;

  virtual const Arithmetic& arithmetic() const = 0;
  /// Null if codecs work in host memory.
  virtual const CodecKernels* codec_kernels() const { return nullptr; }
};

/// Whether there may be devices: one was set, or the driver's device node exists. Loads nothing.
bool may_have_device();
/// The devices of this process; loads libstarling_cuda on the first call. Throws Error with the reason if
/// there are none.
Device& device();
/// The reason why device() would throw; empty if it would not.
std::string why_no_device();
/// Device::failure() if a device is in use. Loads nothing.
std::string device_failure();
/// For tests: makes device() return this one from now on.
void set_device(std::shared_ptr<Device> device);

}  // namespace starling::kernel

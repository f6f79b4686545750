#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/kernel/device.h"

namespace starling::kernel {

struct FakeDeviceOptions {
  /// Number of bytes available to create_shared().
  std::size_t memory = std::size_t{1} << 30;
  /// Unless 0, each operation starts after a random delay of 0 to 300 us.
  std::uint64_t seed = 0;
  /// Operations run on the calling thread before the call returns; waits block the caller, and errors are
  /// thrown immediately.
  bool inline_execution = false;
  int devices = 1;
  /// Otherwise every process has a device of its own that cannot read the memory of others.
  bool peer_access = true;
};

/// A device for tests, made of threads and host memory. Each stream, including the null stream of each
/// device, has a thread that runs its operations in order. Threads start when first needed, so that a test
/// may fork before.
///
/// An error of an operation sticks to its stream: operations enqueued after it are dropped, and every later
/// call on the stream throws it.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options = {});
  /// Runs enqueued operations, on each stream up to the first wait whose flag has not been reached.
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  std::string version() const override { return "fake"; }
  std::vector<DeviceInfo> devices() const override;

  SharedMemory create_shared(std::size_t bytes) override;
  /// Maps read-only: a write to a peer's memory crashes.
  void* map_shared(Descriptor descriptor, std::size_t bytes) override;
  /// Aborts unless this is memory of create_shared() or map_shared().
  void release_shared(void* address, std::size_t bytes) noexcept override;

  /// Throws InvalidArgument if the range overlaps a registered one.
  void register_flags(void* memory, std::size_t bytes) override;
  void unregister_flags(void* memory) noexcept override;
  /// Like all functions that take flags, these throw InvalidArgument unless the flag lies in a registered
  /// range.
  void wait(const Flag& flag, std::uint32_t number) override;
  void write(Flag& flag, std::uint32_t number) override;

  Stream new_stream() override;
  void order_after(const DeviceContext& other) override;
  void synchronize() override;
  std::string failure() const override;
  /// The work that is enqueued on the calling thread's stream now fails, as a kernel that crashes.
  void crash(const std::string& why) const;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override;

  bool capturing() const override { return capturing_; }
  /// From now on, streams count as being captured or not; operations still run at once.
  void pretend_capturing(bool pretend) { capturing_ = pretend; }
  Moment mark_moment() override;
  bool reached(const Moment& moment) override;
  double seconds_between(const Moment& begin, const Moment& end) override;

  const Arithmetic& arithmetic() const override;

 private:
  class Queue;
  struct FakeMoment;
  class Streams;
  class Operations;
  struct Mapping {
    std::size_t bytes = 0;
    bool own = false;  // allocated by create_shared()
  };

  /// Enqueues on the calling thread's stream.
  void enqueue(std::function<void()> operation) const;
  void check_flag(const Flag& flag, std::uint32_t number) const;

  const FakeDeviceOptions options_;
  std::atomic<bool> capturing_ = false;
  std::shared_ptr<Streams> streams_;
  std::unique_ptr<Operations> operations_;
  mutable std::mutex mutex_;                     // guards the members below
  std::map<void*, Mapping> mappings_;            // of device memory
  std::size_t used_ = 0;                         // by create_shared()
  std::map<std::uintptr_t, std::size_t> flags_;  // address and bytes of registered ranges
};

}  // namespace starling::kernel

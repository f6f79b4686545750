#pragma once

namespace starling::kernel {

/// A stream of work on a device, as the device's library represents it (a cudaStream_t); null is the default
/// stream.
using Stream = void*;

/// Where a thread's device work goes: operations on buffers in device memory are enqueued on this stream and
/// return at once.
struct DeviceContext {
  int device = 0;
  Stream stream = nullptr;
  bool operator==(const DeviceContext&) const = default;
};
/// This thread's context. Code that knows a framework's current stream (the Trainer, the Python package) sets
/// it for the duration of a call.
DeviceContext& device_context();

class DeviceScope {
 public:
  explicit DeviceScope(DeviceContext context) : before_(device_context()) { device_context() = context; }
  ~DeviceScope() { device_context() = before_; }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceContext before_;
};

}  // namespace starling::kernel

#pragma once

#include <functional>
#include <memory>

#include "starling/base/floors.h"
#include "starling/train/torch_version.h"

// torch's streams and graphs of CUDA, in builds with a PyTorch for CUDA; elsewhere these do nothing.

namespace starling::train {

/// While this object exists, a stream of its own is the calling thread's current stream on a GPU, so that the
/// work of workers that are threads of one process runs at the same time. Does nothing on the CPU.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A device's work that is recorded once and can be repeated by one launch (a CUDA graph).
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Calls `body` and records the work that it enqueues on the current stream, without doing it.
  virtual void record(const std::function<void()>& body) = 0;
  /// Enqueues the recorded work on the current stream. It uses the same memory every time.
  virtual void replay() = 0;
};

/// Null if work on this device cannot be recorded. Recording needs a stream other than the default one.
std::unique_ptr<DeviceGraph> make_graph(torch::Device device);

}  // namespace starling::train

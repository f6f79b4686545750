#include "starling/train/torch_cuda.h"

#ifdef STARLING_TORCH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <mutex>
#endif

namespace starling::train {

#ifdef STARLING_TORCH_CUDA

struct OwnStream::State {
  explicit State(torch::Device device)
      : guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}
  c10::cuda::CUDAStreamGuard guard;
};

OwnStream::OwnStream(torch::Device device)
    : state_(device.is_cuda() ? std::make_unique<State>(device) : nullptr) {}

// CUDAGraph's interface has been stable since torch 2.1.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
namespace {

class TorchGraph final : public DeviceGraph {
 public:
  void record(const std::function<void()>& body) override {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    // Other threads may allocate memory meanwhile.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      try {
        graph_.capture_end();  // the stream can be used again
      } catch (const c10::Error&) {
      }
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(torch::Device device) {
  return device.is_cuda() ? std::make_unique<TorchGraph>() : nullptr;
}
#else
std::unique_ptr<DeviceGraph> make_graph(torch::Device /*device*/) {
  return nullptr;
}
#endif

#else

struct OwnStream::State {};

OwnStream::OwnStream(torch::Device /*device*/) {}

std::unique_ptr<DeviceGraph> make_graph(torch::Device /*device*/) {
  return nullptr;
}

#endif

OwnStream::~OwnStream() = default;

}  // namespace starling::train

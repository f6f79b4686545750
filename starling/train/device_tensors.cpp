#include "starling/train/device_tensors.h"

#include <fmt/format.h>

#ifdef STARLING_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include "starling/base/error.h"

namespace starling::train {
namespace {

bool pretending = false;

torch::ScalarType type_of_elements(DType dtype) {
  if (dtype == DType::float64) return torch::kFloat64;
  if (dtype == DType::float16) return torch::kFloat16;
  return dtype == DType::bfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

}  // namespace

DType dtype_of_tensor(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat64:
      return DType::float64;
    case torch::kFloat32:
      return DType::float32;
    case torch::kFloat16:
      return DType::float16;
    case torch::kBFloat16:
      return DType::bfloat16;
    default:
      throw InvalidArgument(
          fmt::format("a tensor of {} cannot be averaged; float32, float64, float16 and bfloat16 can",
                      torch::toString(tensor.scalar_type())));
  }
}

bool is_on_device(const torch::Tensor& tensor) {
  return tensor.is_cuda() || pretending;
}

Buffer buffer_of_tensor(const torch::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (!is_on_device(tensor)) return {dtype_of_tensor(tensor), tensor.data_ptr(), count};
  return {dtype_of_tensor(tensor), tensor.data_ptr(), count, MemoryKind::cuda, nullptr};
}

torch::Tensor tensor_over(ConstBuffer elements, at::IntArrayRef sizes, const torch::Tensor& like) {
  const auto options = torch::TensorOptions(type_of_elements(elements.dtype))
                           .device(elements.on_host() ? torch::Device(torch::kCPU) : like.device());
  return torch::from_blob(const_cast<void*>(elements.address()), sizes, options);
}

kernel::DeviceContext torch_context(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) return kernel::device_context();
#ifdef STARLING_TORCH_CUDA
  const auto index = tensor.device().index();
  return {index, c10::cuda::getCurrentCUDAStream(index).stream()};
#else
  throw Error("this Starling was built with a PyTorch without CUDA; build it with the one that is used");
#endif
}

void pretend_tensors_are_on_device(bool pretend) {
  pretending = pretend;
}

}  // namespace starling::train

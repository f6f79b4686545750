#pragma once

#include "starling/base/buffer.h"
#include "starling/kernel/device.h"
#include "starling/train/torch_version.h"

namespace starling::train {

DType dtype_of_tensor(const torch::Tensor& tensor);

/// The elements of a contiguous tensor, in their memory.
Buffer buffer_of_tensor(const torch::Tensor& tensor);
/// A tensor over the elements of a buffer; on the device of `like` if they are on one.
torch::Tensor tensor_over(ConstBuffer elements, at::IntArrayRef sizes, const torch::Tensor& like);

/// Whether the tensor is on a device that Starling supports (kernel/device.h).
bool is_on_device(const torch::Tensor& tensor);
/// The tensor's device and torch's current stream there: Starling's work on this stream is ordered with the
/// work that torch enqueues before and after it.
kernel::DeviceContext torch_context(const torch::Tensor& tensor);

/// For tests without a GPU: from now on host tensors count as tensors on the device given to
/// kernel::set_device().
void pretend_tensors_are_on_device(bool pretend);

}  // namespace starling::train

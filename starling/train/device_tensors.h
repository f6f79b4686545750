#pragma once

#include "starling/base/buffer.h"
#include "starling/kernel/device.h"
#include "starling/train/torch_version.h"

namespace starling::train {

DType dtype_of_tensor(const torch::Tensor& tensor);

/// The elements of a contiguous tensor, in the memory where they lie.
Buffer buffer_of_tensor(const torch::Tensor& tensor);
/// The elements of a buffer as a tensor of `like`'s type; on its device if they lie on one.
torch::Tensor tensor_over(ConstBuffer elements, at::IntArrayRef sizes, const torch::Tensor& like);

/// Whether the tensor lies on a device whose memory Starling can work in (kernel/device.h).
bool is_on_device(const torch::Tensor& tensor);
/// The tensor's device, and torch's current stream there: what torch enqueues before and after Starling's
/// work on this stream is ordered with it.
kernel::DeviceContext torch_context(const torch::Tensor& tensor);

/// For tests without a GPU: from now on tensors of the host count as tensors on the device that
/// kernel::set_device() was given.
void pretend_tensors_are_on_device(bool pretend);

}  // namespace starling::train

#pragma once

#include <span>

#include "starling/base/floors.h"
#include "starling/data/dataset.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// The numbers of samples, on the host.
torch::Tensor to_tensor(std::span<const std::uint32_t> samples);
/// A copy of a host's tensor on a device, made in the order of its current stream: the host does not wait.
torch::Tensor send_to(torch::Device device, const torch::Tensor& on_host);

struct Batch {
  torch::Tensor images;  // normalized: (pixel / 255 - mean) / deviation
  torch::Tensor labels;
};

/// The given samples of a data set as tensors on the host.
Batch make_batch(const Dataset& data, std::span<const std::uint32_t> samples);

/// A data set in a device's memory, where batches are made: only the numbers of samples are sent there.
class DeviceDataset {
 public:
  /// Returns when the data is there, so that every stream may use it.
  DeviceDataset(const Dataset& data, torch::Device device);

  /// Returns the same batch as make_batch(). `samples` has their numbers, on the device; see to_tensor().
  Batch batch(const torch::Tensor& samples) const;

 private:
  torch::Tensor images_, labels_;  // bytes, as in the Dataset
  torch::Tensor scale_, shift_;    // by channel
};

}  // namespace starling::train

namespace starling {
using train::Batch;
using train::make_batch;
}  // namespace starling

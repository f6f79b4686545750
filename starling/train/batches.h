#pragma once

#include <span>

#include "starling/base/floors.h"
#include "starling/data/dataset.h"
#include "starling/train/torch_version.h"

namespace starling::train {

struct Batch {
  torch::Tensor images;  // normalized: (pixel / 255 - mean) / deviation
  torch::Tensor labels;
};

/// The given samples of a data set as tensors on the host.
Batch make_batch(const Dataset& data, std::span<const std::uint32_t> samples);

/// A data set in a device's memory, where batches are made: only the numbers of samples are sent there.
class DeviceDataset {
 public:
  DeviceDataset(const Dataset& data, torch::Device device);

  torch::Device device() const { return images_.device(); }
  /// Returns the same batch as make_batch().
  Batch batch(std::span<const std::uint32_t> samples) const;

 private:
  torch::Tensor images_, labels_;  // bytes, as in the Dataset
  torch::Tensor scale_, shift_;    // by channel
};

}  // namespace starling::train

namespace starling {
using train::Batch;
using train::make_batch;
}  // namespace starling

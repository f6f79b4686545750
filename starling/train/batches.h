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

/// The given samples of a data set as tensors.
Batch make_batch(const Dataset& data, std::span<const std::uint32_t> samples);

}  // namespace starling::train

namespace starling {
using train::Batch;
using train::make_batch;
}  // namespace starling

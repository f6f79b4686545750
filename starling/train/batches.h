#pragma once

#include <span>

#include "starling/data/dataset.h"
#include "starling/train/torch_version.h"

namespace starling {

struct Batch {
  torch::Tensor images;  // normalised: (pixel / 255 - mean) / deviation
  torch::Tensor labels;
};

/// These samples of a data set, as a network wants them.
Batch make_batch(const Dataset& data, std::span<const std::uint32_t> samples);

}  // namespace starling

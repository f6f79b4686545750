#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/data/registry.h"

namespace starling::data {

/// Synthetic images: each of ten classes is a smooth random pattern, which images show shifted, with varying
/// strength, and with a smooth background and noise added. Small convolutional networks learn it from a few
/// thousand images; a linear classifier does not. Uses integer arithmetic: the same bytes on every platform.
struct SyntheticOptions {
  std::uint64_t seed = 1;  // of the patterns and of the images
  std::size_t train = 4000;
  std::size_t test = 1000;
  std::size_t channels = 1;  // each with patterns of its own
  std::size_t size = 28;     // pixels of a side
};

/// The two splits have the same patterns and no common image.
Dataset make_synthetic(Split split, const SyntheticOptions& options = {});

/// The data set `synthetic(seed=1, train=4000, test=1000, channels=1, size=28)`.
DataSource synthetic_source();

}  // namespace starling::data

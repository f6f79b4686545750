#include "starling/train/batches.h"

namespace starling::train {

Batch make_batch(const Dataset& data, std::span<const std::uint32_t> samples) {
  const auto count = static_cast<std::int64_t>(samples.size());
  const auto& shape = data.shape;
  Batch batch{torch::empty({count, static_cast<std::int64_t>(shape.channels),
                            static_cast<std::int64_t>(shape.height), static_cast<std::int64_t>(shape.width)}),
              torch::empty({count}, torch::kLong)};
  auto* pixels = batch.images.data_ptr<float>();
  auto* labels = batch.labels.data_ptr<std::int64_t>();
  const std::size_t plane = shape.height * shape.width;
  for (const std::uint32_t sample : samples) {
    const auto image = data.image(sample);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      const float scale = 1 / (255 * data.deviation[c]);
      const float shift = data.mean[c] / data.deviation[c];
      for (std::size_t i = 0; i < plane; ++i)
        *pixels++ = static_cast<float>(image[c * plane + i]) * scale - shift;
    }
    *labels++ = data.labels[sample];
  }
  return batch;
}

}  // namespace starling::train

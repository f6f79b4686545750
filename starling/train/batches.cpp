#include "starling/train/batches.h"

#include <algorithm>
#include <torch/cuda.h>

namespace starling::train {
namespace {

// A normalized pixel is pixel * scale - shift.
float scale_of(const Dataset& data, std::size_t channel) {
  return 1 / (255 * data.deviation[channel]);
}
float shift_of(const Dataset& data, std::size_t channel) {
  return data.mean[channel] / data.deviation[channel];
}

torch::Tensor bytes_at(const std::vector<std::uint8_t>& bytes, at::IntArrayRef sizes) {
  return torch::from_blob(const_cast<std::uint8_t*>(bytes.data()), sizes, torch::kUInt8);
}

}  // namespace

torch::Tensor to_tensor(std::span<const std::uint32_t> samples) {
  torch::Tensor numbers = torch::empty({static_cast<std::int64_t>(samples.size())}, torch::kLong);
  std::copy(samples.begin(), samples.end(), numbers.data_ptr<std::int64_t>());
  return numbers;
}

// A copy from memory that is not pinned would wait for all work before it.
torch::Tensor send_to(torch::Device device, const torch::Tensor& on_host) {
  return device.is_cpu() ? on_host : on_host.pin_memory().to(device, /*non_blocking=*/true);
}

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
      const float scale = scale_of(data, c);
      const float shift = shift_of(data, c);
      for (std::size_t i = 0; i < plane; ++i)
        *pixels++ = static_cast<float>(image[c * plane + i]) * scale - shift;
    }
    *labels++ = data.labels[sample];
  }
  return batch;
}

DeviceDataset::DeviceDataset(const Dataset& data, torch::Device device) {
  const auto count = static_cast<std::int64_t>(data.size());
  const auto channels = static_cast<std::int64_t>(data.shape.channels);
  images_ = bytes_at(data.images, {count, channels, static_cast<std::int64_t>(data.shape.height),
                                   static_cast<std::int64_t>(data.shape.width)})
                .to(device);
  labels_ = bytes_at(data.labels, {count}).to(device, torch::kLong);
  std::vector<float> scales, shifts;
  for (std::size_t c = 0; c < data.shape.channels; ++c) {
    scales.push_back(scale_of(data, c));
    shifts.push_back(shift_of(data, c));
  }
  scale_ = torch::tensor(scales).view({1, channels, 1, 1}).to(device);
  shift_ = torch::tensor(shifts).view({1, channels, 1, 1}).to(device);
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

Batch DeviceDataset::batch(const torch::Tensor& samples) const {
  return {images_.index_select(0, samples).to(torch::kFloat32) * scale_ - shift_,
          labels_.index_select(0, samples)};
}

}  // namespace starling::train

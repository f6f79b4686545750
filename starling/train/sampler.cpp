#include "starling/train/sampler.h"

#include <algorithm>

#include "starling/base/error.h"

namespace starling {

FlockSampler::FlockSampler(const Flock& flock, std::size_t count, SplitOptions options)
    : split_({count, {}}, flock.rank(), flock.size(), std::move(options)) {}

FlockSampler::FlockSampler(const Flock& flock, std::span<const std::uint8_t> labels, SplitOptions options)
    : split_({labels.size(), labels}, flock.rank(), flock.size(), std::move(options)) {}

void FlockSampler::start(std::int64_t epoch) {
  order_ = split_.order(epoch);
  epoch_ = epoch;
  next_epoch_ = epoch + 1;
  position_ = 0;
}

void FlockSampler::reset(TorchOptional<std::size_t> new_size) {
  if (new_size.has_value())
    throw InvalidArgument("a FlockSampler splits a data set of one size; make another one for another size");
  start(next_epoch_);
}

TorchOptional<std::vector<std::size_t>> FlockSampler::next(std::size_t batch_size) {
  if (epoch_ < 0) start(next_epoch_);
  if (position_ == order_.size()) return {};
  const std::size_t end = std::min(order_.size(), position_ + batch_size);
  std::vector<std::size_t> batch(order_.begin() + static_cast<std::ptrdiff_t>(position_),
                                 order_.begin() + static_cast<std::ptrdiff_t>(end));
  position_ = end;
  return batch;
}

void FlockSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(epoch_, torch::kInt64), true);
  archive.write("position", torch::tensor(static_cast<std::int64_t>(position_), torch::kInt64), true);
}

void FlockSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty(1, torch::kInt64);
  torch::Tensor position = torch::empty(1, torch::kInt64);
  archive.read("epoch", epoch, true);
  archive.read("position", position, true);
  if (epoch.item<std::int64_t>() < 0) return;
  start(epoch.item<std::int64_t>());
  position_ = std::min(order_.size(), static_cast<std::size_t>(position.item<std::int64_t>()));
}

}  // namespace starling

#include "starling/train/sampler.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/checksum.h"
#include "starling/base/error.h"
#include "starling/train/gathered.h"

namespace starling::train {
namespace {

// Compares the arguments first, because later code may throw on one rank only.
Samples compared(const Flock& flock, const Samples& samples, const SplitOptions& options) {
  check_same_split(flock, samples, options);
  return samples;
}

}  // namespace

void check_same_split(Flock flock, const Samples& samples, const SplitOptions& options) {
  if (flock.size() == 1 || flock.newcomers() > 0) return;
  Description own;
  own.add("samples", std::to_string(samples.count));
  own.add("seed", std::to_string(options.seed));
  own.add("partition", options.partition);
  own.add("shuffle", options.shuffle ? "true" : "false");
  own.add("even", options.even ? "true" : "false");
  own.add("labels (checksum)",
          samples.labels.empty() ? "none" : checksum_text(checksum_of(std::as_bytes(samples.labels))));
  if (const auto difference = difference_among(gather_descriptions(flock, own, Name("FlockSampler"))))
    throw InvalidArgument(fmt::format("FlockSampler: the ranks do not split the same data: {}", *difference));
}

FlockSampler::FlockSampler(const Flock& flock, std::size_t count, SplitOptions options)
    : split_(compared(flock, {count, {}}, options), flock.rank(), flock.size(), options) {}

FlockSampler::FlockSampler(const Flock& flock, std::span<const std::uint8_t> labels, SplitOptions options)
    : split_(compared(flock, {labels.size(), labels}, options), flock.rank(), flock.size(), options) {}

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

}  // namespace starling::train

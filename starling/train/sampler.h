#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <torch/data/samplers/base.h>
#include <vector>

#include "starling/data/data_split.h"
#include "starling/flock/flock.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// The optional type of torch's samplers.
#if TORCH_VERSION_MAJOR >= 2
template <typename T>
using TorchOptional = std::optional<T>;
#else
template <typename T>
using TorchOptional = c10::optional<T>;
#endif

/// Throws InvalidArgument on every rank if ranks would split their data differently, with the first
/// difference, both values and both ranks. A collective. Does nothing after newcomers were admitted, since
/// the other ranks made their samplers before.
void check_same_split(Flock flock, const Samples& samples, const SplitOptions& options);

/// A sampler for libtorch's DataLoader that gives each rank its own part of a data set. Every pass over the
/// loader is the next epoch, in a new order; all ranks take the same number of batches. The constructor is a
/// collective: every rank calls it with the same number of samples, labels and options, which are compared.
///
///   auto data = torch::data::datasets::MNIST(folder).map(torch::data::transforms::Stack<>());
///   const std::size_t count = data.size().value();
///   auto loader = torch::data::make_data_loader(std::move(data), starling::FlockSampler(flock, count),
///                                               32);
class FlockSampler : public torch::data::samplers::Sampler<> {
 public:
  FlockSampler(const Flock& flock, std::size_t count, SplitOptions options = {});
  /// For partitions that split by class.
  FlockSampler(const Flock& flock, std::span<const std::uint8_t> labels, SplitOptions options = {});

  /// Sets the epoch of the next pass over the loader, for resuming.
  void set_epoch(std::int64_t epoch) { next_epoch_ = epoch; }
  /// This rank's samples per epoch.
  std::size_t size() const { return split_.size(); }

  // Called by the DataLoader.
  void reset(TorchOptional<std::size_t> new_size = {}) override;
  TorchOptional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void start(std::int64_t epoch);

  DataSplit split_;
  std::int64_t epoch_ = -1;
  std::int64_t next_epoch_ = 0;
  std::size_t position_ = 0;
  std::vector<std::uint32_t> order_;
};

}  // namespace starling::train

namespace starling {
using train::FlockSampler;
}  // namespace starling

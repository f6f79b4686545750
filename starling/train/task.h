#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/data/dataset.h"
#include "starling/data/shard.h"
#include "starling/train/model/model.h"

namespace starling {

/// What is learned: a data set, and how a model is judged on it.
class Task {
 public:
  virtual ~Task() = default;

  /// Samples of a split; they are numbered from 0.
  virtual std::size_t size(Split split) const = 0;
  /// Deals the training samples to workers, `iid` for example. Equal arguments give equal shards.
  virtual std::vector<Shard> partition(const std::string& text, int workers, std::uint64_t seed) const = 0;
  /// A model that fits the data, `lenet` for example; its start is drawn from torch's generator.
  virtual ModelPtr make_model(const std::string& text) const = 0;

  /// The mean loss of a batch of training samples, to call backward() on.
  virtual torch::Tensor loss(Model& model, std::span<const std::uint32_t> samples) const = 0;

  /// Sums over what was predicted: images, or characters.
  struct Judged {
    double right = 0;
    double loss = 0;
    double count = 0;
  };
  /// Of any number of test samples, without gradients and in small batches. Whether layers such as batch norm
  /// train or evaluate is the caller's choice: model.eval().
  virtual Judged judge(Model& model, std::span<const std::uint32_t> samples) const = 0;
};

/// "mnist", "synthetic(seed=3)", ...: any data set of the registry; "text:FILE" or "text(file=FILE,
/// block=64)": the characters of a text. Fetches nothing; throws InvalidArgument listing what is valid, and
/// Error where files are not there.
std::unique_ptr<Task> make_task(const std::string& data);
/// What its samples are, by the name alone; throws InvalidArgument where there is no such data set.
ModelInput kind_of_data(const std::string& data);

}  // namespace starling

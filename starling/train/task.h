#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/data/dataset.h"
#include "starling/data/shard.h"
#include "starling/data/text.h"
#include "starling/train/model/model.h"

namespace starling::train {

/// A learning task: a data set, with the loss and the evaluation of a model on it.
class Task {
 public:
  virtual ~Task() = default;

  /// The number of samples of a split; they are numbered from 0.
  virtual std::size_t size(Split split) const = 0;
  /// Divides the training samples among workers, for example by `iid`. Equal arguments give equal shards.
  virtual std::vector<Shard> partition(const std::string& text, int workers, std::uint64_t seed) const = 0;
  /// A model for this data, for example `lenet`, initialized from torch's random generator.
  virtual ModelPtr make_model(const std::string& text) const = 0;

  /// A batch of training samples on the model's device, for loss(). The host does not wait for the device.
  virtual torch::Tensor batch(const Model& model, std::span<const std::uint32_t> samples) const = 0;
  /// The mean loss of a batch, to call backward() on. On a device, the host does not wait for it, so that the
  /// work can be recorded in a CUDA graph.
  virtual torch::Tensor loss(Model& model, const torch::Tensor& batch) const = 0;
  torch::Tensor loss(Model& model, std::span<const std::uint32_t> samples) const {
    return loss(model, batch(model, samples));
  }

  /// Sums over all predictions (images, or characters).
  struct Evaluation {
    double correct = 0;
    double loss = 0;
    double count = 0;
  };
  /// Evaluates the model on test samples, without gradients and in small batches. The caller chooses the mode
  /// of layers such as batch norm: model.eval().
  virtual Evaluation evaluate(Model& model, std::span<const std::uint32_t> samples) const = 0;
};

/// A task by the name of its data: "mnist", "synthetic(seed=3)" or any other registered data set; "text:FILE"
/// or "text(file=FILE, block=64)" for the characters of a text. Downloads nothing; throws InvalidArgument
/// with what is valid, and Error if files are missing.
std::unique_ptr<Task> make_task(const std::string& data);
/// The kind of a data set's samples, from its name alone; throws InvalidArgument if there is no such data
/// set.
ModelInput kind_of_data(const std::string& data);
/// The canonical spelling, equal for all names of the same data.
std::string canonical_task(const std::string& data);

/// Classification of images, by cross entropy; `train` and `test` have the same shape and classes.
std::unique_ptr<Task> make_image_task(Dataset train, Dataset test);
/// Prediction of each character of a text from those before it in its window, by cross entropy.
std::unique_ptr<Task> make_text_task(TextWindows text);

}  // namespace starling::train

namespace starling {
using train::make_task;
using train::Task;
}  // namespace starling

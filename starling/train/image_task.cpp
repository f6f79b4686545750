#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <utility>

#include "starling/base/error.h"
#include "starling/data/partition.h"
#include "starling/train/batches.h"
#include "starling/train/evaluation.h"
#include "starling/train/task.h"

namespace starling::train {
namespace {

constexpr std::size_t kImagesAtOnce = 250;

class ImageTask final : public Task {
 public:
  ImageTask(Dataset train, Dataset test) : train_(std::move(train)), test_(std::move(test)) {
    train_.check();
    test_.check();
    if (train_.shape != test_.shape || train_.classes != test_.classes)
      throw InvalidArgument(
          fmt::format("{}: its training and test images differ in shape or classes", train_.name));
  }

  std::size_t size(Split split) const override {
    return split == Split::train ? train_.size() : test_.size();
  }

  std::vector<Shard> partition(const std::string& text, int workers, std::uint64_t seed) const override {
    return make_partition(text, train_.labels, workers, seed);
  }

  ModelPtr make_model(const std::string& text) const override {
    return starling::make_model(text, {.channels = static_cast<std::int64_t>(train_.shape.channels),
                                       .height = static_cast<std::int64_t>(train_.shape.height),
                                       .width = static_cast<std::int64_t>(train_.shape.width),
                                       .classes = train_.classes});
  }

  torch::Tensor loss(Model& model, std::span<const std::uint32_t> samples) const override {
    const Batch batch = batch_for(model, Split::train, samples);
    return torch::cross_entropy_loss(model.forward(batch.images), batch.labels);
  }

  Evaluation evaluate(Model& model, std::span<const std::uint32_t> samples) const override {
    return evaluate_in_parts(samples, kImagesAtOnce, [&](std::span<const std::uint32_t> part) {
      const Batch batch = batch_for(model, Split::test, part);
      return evaluate_logits(model.forward(batch.images), batch.labels);
    });
  }

 private:
  // Makes the batch on the model's device.
  Batch batch_for(const Model& model, Split split, std::span<const std::uint32_t> samples) const {
    const Dataset& data = split == Split::train ? train_ : test_;
    const torch::Device device = model.parameters()[0].device();
    if (device.is_cpu()) return make_batch(data, samples);
    const std::lock_guard lock(mutex_);
    std::optional<DeviceDataset>& there = split == Split::train ? train_there_ : test_there_;
    if (!there || there->device() != device) there.emplace(data, device);
    return there->batch(samples);
  }

  Dataset train_, test_;
  mutable std::mutex mutex_;
  mutable std::optional<DeviceDataset> train_there_, test_there_;  // copies on the model's device
};

}  // namespace

std::unique_ptr<Task> make_image_task(Dataset train, Dataset test) {
  return std::make_unique<ImageTask>(std::move(train), std::move(test));
}

}  // namespace starling::train

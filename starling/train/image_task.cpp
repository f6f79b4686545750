#include <fmt/format.h>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

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

  // The numbers of the samples.
  torch::Tensor batch(const Model& model, std::span<const std::uint32_t> samples) const override {
    return send_to(device_of(model), to_tensor(samples));
  }

  torch::Tensor loss(Model& model, const torch::Tensor& batch) const override {
    const Batch images = images_of(Split::train, batch);
    return torch::cross_entropy_loss(model.forward(images.images), images.labels);
  }

  Evaluation evaluate(Model& model, std::span<const std::uint32_t> samples) const override {
    return evaluate_in_parts(samples, kImagesAtOnce, [&](std::span<const std::uint32_t> part) {
      const Batch batch = images_of(Split::test, send_to(device_of(model), to_tensor(part)));
      return evaluate_logits(model.forward(batch.images), batch.labels);
    });
  }

 private:
  static torch::Device device_of(const Model& model) { return model.parameters()[0].device(); }

  // Makes the batch of these samples where their numbers are.
  Batch images_of(Split split, const torch::Tensor& samples) const {
    const Dataset& data = split == Split::train ? train_ : test_;
    const torch::Device device = samples.device();
    if (device.is_cpu()) {
      const auto* numbers = samples.data_ptr<std::int64_t>();
      return make_batch(data, std::vector<std::uint32_t>(numbers, numbers + samples.numel()));
    }
    return copy_on(device, split, data).batch(samples);
  }

  // Workers that are threads of one process share the copy on their device.
  const DeviceDataset& copy_on(torch::Device device, Split split, const Dataset& data) const {
    const std::lock_guard lock(mutex_);
    return copies_.try_emplace({device.index(), split}, data, device).first->second;
  }

  Dataset train_, test_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int, Split>, DeviceDataset> copies_;  // by device
};

}  // namespace

std::unique_ptr<Task> make_image_task(Dataset train, Dataset test) {
  return std::make_unique<ImageTask>(std::move(train), std::move(test));
}

}  // namespace starling::train

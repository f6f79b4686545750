#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "starling/base/error.h"
#include "starling/train/model/model.h"

namespace starling::train {
namespace {

// Channels of the convolutions; the image is halved between stages.
const std::vector<std::vector<std::int64_t>> kStages = {{64}, {128}, {256, 256}, {512, 512}, {512, 512}};
constexpr std::int64_t kLeastSide = 16;
// Smaller images are not halved: batch norm needs more than one pixel if a batch is a single image.
constexpr std::int64_t kLeastToHalve = 4;

/// VGG-11 for small images: 3 x 3 convolutions with batch norm, one dense layer; 9.2 million parameters. The
/// last stage's output (2 x 2 for CIFAR images, 3 x 3 for 28 x 28 ones) is pooled to one pixel.
class Vgg11 final : public Model {
 public:
  explicit Vgg11(const ModelSetting& setting) : head_(kStages.back().back(), setting.classes) {
    std::int64_t in = setting.channels;
    for (const auto& stage : kStages) {
      torch::nn::Sequential layers;
      for (const std::int64_t out : stage) {
        layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
        layers->push_back(torch::nn::BatchNorm2d(out));
        layers->push_back(torch::nn::ReLU());
        in = out;
      }
      stages_.emplace_back(register_module("stage" + std::to_string(stages_.size()), layers));
    }
    register_module("head", head_);
  }

  torch::Tensor forward(const torch::Tensor& batch) override {
    torch::Tensor x = stages_[0]->forward(batch);
    for (std::size_t i = 1; i < stages_.size(); ++i) {
      if (std::min(x.size(2), x.size(3)) >= kLeastToHalve) x = torch::max_pool2d(x, 2);
      x = stages_[i]->forward(x);
    }
    return head_(x.amax({2, 3}));
  }

 private:
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear head_;
};

}  // namespace

ModelFamily vgg11_family() {
  return {"vgg11",
          "VGG-11 with batch norm for small images",
          {},
          [](const Parameters&, const ModelSetting& setting) {
            if (setting.height < kLeastSide || setting.width < kLeastSide)
              throw InvalidArgument(fmt::format("vgg11 needs images of at least {} x {} pixels, not {} x {}",
                                                kLeastSide, kLeastSide, setting.height, setting.width));
            return std::make_shared<Vgg11>(setting);
          }};
}

}  // namespace starling::train

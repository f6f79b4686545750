#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "starling/train/model/model.h"

namespace starling::train {
namespace {

torch::nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

/// Two convolutions and a shortcut. Where the size changes, the shortcut drops every other pixel and adds
/// empty channels (He et al.'s option A, without parameters).
class Residual final : public torch::nn::Module {
 public:
  Residual(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1_(conv3x3(in, out, stride)),
        norm1_(out),
        conv2_(conv3x3(out, out, 1)),
        norm2_(out),
        added_(out - in),
        stride_(stride) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
    if (added_ == 0) return torch::relu(y + x);
    using torch::indexing::None;
    using torch::indexing::Slice;
    const auto smaller = x.index({Slice(), Slice(), Slice(None, None, stride_), Slice(None, None, stride_)});
    return torch::relu(y + torch::constant_pad_nd(smaller, {0, 0, 0, 0, added_ / 2, added_ - added_ / 2}));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d norm2_;
  std::int64_t added_;
  std::int64_t stride_;
};

/// 3 x 3 residual blocks of 16, 32 and 64 channels: about 270,000 parameters.
class ResNet20 final : public Model {
 public:
  explicit ResNet20(const ModelSetting& setting)
      : stem_(conv3x3(setting.channels, 16, 1)), norm_(16), head_(64, setting.classes) {
    register_module("stem", stem_);
    register_module("norm", norm_);
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64})
      for (int i = 0; i < 3; ++i) {
        blocks_.push_back(register_module("block" + std::to_string(blocks_.size()),
                                          std::make_shared<Residual>(in, out, in == out ? 1 : 2)));
        in = out;
      }
    register_module("head", head_);
  }

  torch::Tensor forward(const torch::Tensor& batch) override {
    auto x = torch::relu(norm_(stem_(batch)));
    for (const auto& block : blocks_) x = block->forward(x);
    return head_(x.mean({2, 3}));
  }

 private:
  torch::nn::Conv2d stem_;
  torch::nn::BatchNorm2d norm_;
  std::vector<std::shared_ptr<Residual>> blocks_;
  torch::nn::Linear head_;
};

}  // namespace

ModelFamily resnet20_family() {
  return {"resnet20",
          "the residual network of 20 layers for small images",
          {},
          [](const Parameters&, const ModelSetting& setting) { return std::make_shared<ResNet20>(setting); }};
}

}  // namespace starling::train

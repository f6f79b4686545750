#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "starling/base/error.h"
#include "starling/train/model/model.h"

namespace starling::train {
namespace {

/// LeNet-5 with rectifiers and maximum pooling: 61,706 parameters on MNIST.
class LeNet final : public Model {
 public:
  explicit LeNet(const ModelSetting& setting)
      : conv1_(torch::nn::Conv2dOptions(setting.channels, 6, 5).padding(2)),
        conv2_(torch::nn::Conv2dOptions(6, 16, 5)),
        fc1_(16 * ((setting.height / 2 - 4) / 2) * ((setting.width / 2 - 4) / 2), 120),
        fc2_(120, 84),
        fc3_(84, setting.classes) {
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
    register_module("fc3", fc3_);
  }

  torch::Tensor forward(const torch::Tensor& batch) override {
    auto x = torch::max_pool2d(torch::relu(conv1_(batch)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2).flatten(1);
    return fc3_(torch::relu(fc2_(torch::relu(fc1_(x)))));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

ModelFamily lenet_family() {
  return {"lenet",
          "LeNet-5: two convolutions, three dense layers",
          {},
          [](const Parameters&, const ModelSetting& setting) {
            if (setting.height < 16 || setting.width < 16)
              throw InvalidArgument("lenet needs images of at least 16 x 16 pixels");
            return std::make_shared<LeNet>(setting);
          }};
}

}  // namespace starling::train

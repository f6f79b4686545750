#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "starling/train/model/model.h"

namespace starling::train {
namespace {

/// Dense layers of one width, with rectifiers between them; the last one is as wide as there are classes.
class Mlp final : public Model {
 public:
  Mlp(const ModelSetting& setting, std::int64_t layers, std::int64_t width) {
    std::int64_t inputs = setting.channels * setting.height * setting.width;
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_->push_back(torch::nn::Linear(inputs, i + 1 == layers ? setting.classes : width));
      inputs = width;
    }
    register_module("layers", layers_);
  }

  torch::Tensor forward(const torch::Tensor& batch) override {
    auto x = batch.flatten(1);
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (i > 0) x = torch::relu(x);
      x = layers_->at<torch::nn::LinearImpl>(i).forward(x);
    }
    return x;
  }

 private:
  torch::nn::ModuleList layers_;
};

}  // namespace

ModelFamily mlp_family() {
  return {"mlp",
          "dense layers of one width",
          {{"layers", "3", "how many"}, {"width", "256", "of those between the first and the last"}},
          [](const Parameters& given, const ModelSetting& setting) {
            return std::make_shared<Mlp>(setting, given.integer("layers", 1, 1000),
                                         given.integer("width", 1, 1'000'000));
          }};
}

}  // namespace starling::train

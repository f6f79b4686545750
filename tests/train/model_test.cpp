#include "starling/train/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::train {
namespace {

using testing::HasSubstr;

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// A batch of one in training mode, as at the end of an epoch: batch norm must accept it.
void expect_gradients_everywhere(const std::string& name, const ModelSetting& setting) {
  const ModelPtr model = make_model(name, setting);
  const auto images = torch::randn({1, setting.channels, setting.height, setting.width});
  const auto logits = model->forward(images);
  ASSERT_EQ(logits.sizes(), (std::vector<std::int64_t>{1, setting.classes})) << name;
  torch::cross_entropy_loss(logits, torch::zeros({1}, torch::kLong)).backward();
  for (const auto& parameter : model->named_parameters()) {
    const auto gradient = parameter.value().grad();
    ASSERT_TRUE(gradient.defined()) << name << ": " << parameter.key();
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name << ": " << parameter.key();
  }
}

TEST(ModelTest, AcceptsImagesOfManySizes) {
  torch::manual_seed(1);
  for (const ModelFamily& family : model_families()) {
    if (family.input != ModelInput::images) continue;
    expect_gradients_everywhere(family.name, {1, 28, 28, 10});
    expect_gradients_everywhere(family.name, {3, 32, 32, 7});
    expect_gradients_everywhere(family.name, {2, 16, 40, 3});
  }
}

TEST(ModelTest, HasTheParameterCountsOfThePublications) {
  EXPECT_EQ(parameter_count(*make_model("lenet", {1, 28, 28, 10})), 61'706);
  // Convolutions without biases, a scale and a shift per channel, and a 512 x 10 layer with a bias.
  EXPECT_EQ(parameter_count(*make_model("vgg11", {3, 32, 32, 10})), 9'217'728 + 2 * 2752 + 5130);
}

TEST(ModelTest, RefusesImagesThatAreTooSmall) {
  try {
    make_model("vgg11", {3, 15, 32, 10});
    FAIL() << "it was made";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("vgg11 needs images of at least 16 x 16 pixels, not 15 x 32"));
  }
}

}  // namespace
}  // namespace starling::train

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/data/partition.h"
#include "starling/data/registry.h"
#include "starling/train/task.h"

namespace starling::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::uint32_t> first_samples(std::size_t count) {
  std::vector<std::uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), 0U);
  return samples;
}

template <typename F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Predicts class `favorite` for every image, with a fixed lead.
class Stubborn final : public Model {
 public:
  Stubborn(std::int64_t classes, std::int64_t favorite) : classes_(classes), favorite_(favorite) {
    lead = register_parameter("lead", torch::ones({1}));
  }
  torch::Tensor forward(const torch::Tensor& batch) override {
    largest = std::max(largest, batch.size(0));
    with_gradients = torch::GradMode::is_enabled();
    return torch::one_hot(torch::full({batch.size(0)}, favorite_, torch::kLong), classes_) * lead;
  }
  torch::Tensor lead;
  std::int64_t largest = 0;
  bool with_gradients = false;

 private:
  std::int64_t classes_, favorite_;
};

TEST(ImageTask, HasTheSplitsAndShardsOfItsData) {
  const auto task = make_task("synthetic(train=300,test=70)");
  EXPECT_EQ(task->size(Split::train), 300u);
  EXPECT_EQ(task->size(Split::test), 70u);
  const auto labels = load("synthetic(train=300,test=70)", Split::train).labels;
  for (const std::string name : {"iid", "dirichlet(alpha=0.5)"})
    EXPECT_EQ(task->partition(name, 4, 9), make_partition(name, labels, 4, 9)) << name;
}

TEST(ImageTask, EvaluatesEverySampleOnce) {
  const auto task = make_task("synthetic(train=10,test=611)");
  Stubborn model(10, 3);
  const auto labels = load("synthetic(train=10,test=611)", Split::test).labels;
  const auto threes = static_cast<double>(std::count(labels.begin(), labels.end(), 3));
  const Task::Evaluation evaluation = task->evaluate(model, first_samples(611));
  EXPECT_EQ(evaluation.count, 611);
  EXPECT_EQ(evaluation.correct, threes);
  const double base = std::log(9 + std::exp(1.0));
  EXPECT_NEAR(evaluation.loss, 611 * base - threes, 1e-2);
  EXPECT_FALSE(model.with_gradients);
  EXPECT_LT(model.largest, 300) << "memory would grow with the test split";
  EXPECT_EQ(task->evaluate(model, {}).count, 0);
  EXPECT_THAT(refusal([&] { task->evaluate(model, std::vector<std::uint32_t>{611}); }),
              HasSubstr("no image 611"));
}

TEST(ImageTask, TheLossIsTheMeanOverTheBatch) {
  const auto task = make_task("synthetic(train=40,test=10)");
  Stubborn model(10, 3);
  const auto labels = load("synthetic(train=40,test=10)", Split::train).labels;
  const auto threes = static_cast<double>(std::count(labels.begin(), labels.end(), 3));
  const torch::Tensor loss = task->loss(model, first_samples(40));
  EXPECT_NEAR(loss.item<double>(), std::log(9 + std::exp(1.0)) - threes / 40, 1e-5);
  loss.backward();
  EXPECT_NE(model.lead.grad().item<float>(), 0);
}

TEST(ImageTask, MakesModelsThatFitAndLearns) {
  const auto task = make_task("synthetic(train=64,test=10)");
  torch::manual_seed(1);
  const ModelPtr model = task->make_model("mlp(layers=2,width=32)");
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto samples = first_samples(64);
  const double before = task->loss(*model, samples).item<double>();
  for (int i = 0; i < 30; ++i) {
    sgd.zero_grad();
    task->loss(*model, samples).backward();
    sgd.step();
  }
  EXPECT_LT(task->loss(*model, samples).item<double>(), before / 4);
}

TEST(ImageTask, RefusesSplitsThatDoNotBelongTogether) {
  Dataset train = load("synthetic(train=5)", Split::train);
  Dataset test = load("synthetic(test=5)", Split::test);
  test.classes = 11;
  EXPECT_THAT(refusal([&] { make_image_task(train, test); }), HasSubstr("differ in shape or classes"));
}

TEST(MakeTask, ListsValidNames) {
  EXPECT_THAT(refusal([] { make_task("synthetik"); }),
              AllOf(HasSubstr("did you mean synthetic?"), HasSubstr("mnist"), HasSubstr("text:FILE")));
  EXPECT_THAT(refusal([] { make_task("synthetic(depth=5)"); }), HasSubstr("no parameter 'depth'"));
}

}  // namespace
}  // namespace starling::train

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/data/partition.h"
#include "starling/train/task.h"

namespace starling::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kPattern = "the starlings ";

std::vector<std::uint8_t> repeated(std::string_view pattern, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(pattern[i % pattern.size()]);
  return bytes;
}

std::unique_ptr<Task> pattern_task(std::size_t characters, std::size_t block) {
  return make_text_task(TextWindows("pattern", repeated(kPattern, characters), block));
}

std::vector<std::uint32_t> all(const Task& task, Split split) {
  std::vector<std::uint32_t> samples(task.size(split));
  std::iota(samples.begin(), samples.end(), 0U);
  return samples;
}

template <typename F>
std::string text_refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Predicts the alphabet's first character everywhere, with a lead of one.
class StubbornText final : public Model {
 public:
  explicit StubbornText(std::int64_t symbols) : symbols_(symbols) {}
  torch::Tensor forward(const torch::Tensor& batch) override {
    return torch::one_hot(torch::zeros_like(batch), symbols_).to(torch::kFloat);
  }

 private:
  std::int64_t symbols_;
};

TEST(TextTask, CountsCharacters) {
  const auto task = make_text_task(TextWindows("ab", repeated("ab", 100'000), 5));
  StubbornText model(2);
  const auto samples = all(*task, Split::test);
  EXPECT_EQ(samples.size(), 1999u);
  const Task::Evaluation evaluation = task->evaluate(model, samples);
  EXPECT_EQ(evaluation.count, 5 * 1999);
  // Windows of five alternately begin with a and with b; the targets are "babab" and "ababa".
  EXPECT_EQ(evaluation.correct, 2 * 1000 + 3 * 999);
  EXPECT_NEAR(evaluation.loss, evaluation.count * std::log(1 + std::exp(1.0)) - evaluation.correct, 0.1);
  EXPECT_NEAR(task->loss(model, std::vector<std::uint32_t>{0}).item<double>(),
              std::log(1 + std::exp(1.0)) - 0.4, 1e-5);
}

TEST(TextTask, ATransformerLearnsAPattern) {
  const auto task = pattern_task(2000, 16);
  torch::manual_seed(1);
  const ModelPtr model = task->make_model("transformer(layers=1,width=16,heads=2)");
  torch::optim::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto shards = task->partition("iid", 4, 1);
  for (int i = 0; i < 60; ++i) {
    adamw.zero_grad();
    task->loss(*model, shards[static_cast<std::size_t>(i % 4)]).backward();
    adamw.step();
  }
  const Task::Evaluation evaluation = task->evaluate(*model, all(*task, Split::test));
  // One character in 16 has no history, and those after a repeated one are ambiguous: these may be wrong.
  EXPECT_GT(evaluation.correct / evaluation.count, 0.85);
  EXPECT_LT(evaluation.loss / evaluation.count, 0.5);
}

// Later characters must not influence a prediction.
TEST(TextTask, ATransformerUsesOnlyEarlierCharacters) {
  const auto task = pattern_task(2000, 8);
  torch::manual_seed(2);
  const ModelPtr model = task->make_model("transformer(layers=2,width=16,heads=4,block=12)");
  const torch::NoGradGuard no_grad;
  auto window = torch::zeros({1, 8}, torch::kLong);
  const auto before = model->forward(window);
  window[0][5] = 1;
  const auto after = model->forward(window);
  EXPECT_TRUE(before.narrow(1, 0, 5).equal(after.narrow(1, 0, 5)));
  EXPECT_FALSE(before.narrow(1, 5, 3).equal(after.narrow(1, 5, 3)));
}

TEST(TextTask, SplitsWithoutClasses) {
  const auto task = pattern_task(2000, 9);
  const std::size_t count = task->size(Split::train);
  EXPECT_EQ(task->partition("iid", 4, 9), iid_partition(count, 4, 9));
  EXPECT_EQ(task->partition("contiguous", 4, 9), contiguous_partition(count, 4));
  EXPECT_EQ(text_refusal([&] { task->partition("dirichlet(alpha=0.1)", 4, 9); }),
            "dirichlet splits by class, and these samples have none; valid are iid, contiguous");
}

TEST(TextTask, RefusesModelsThatDoNotFit) {
  const auto task = pattern_task(2000, 9);
  EXPECT_EQ(text_refusal([&] { task->make_model("lenet"); }),
            "lenet learns images, and this data is text; valid are transformer");
  EXPECT_EQ(text_refusal([&] { make_task("synthetic(train=5,test=5)")->make_model("transformer"); }),
            "transformer learns text, and this data is images; valid are lenet, mlp, resnet20, vgg11");
  EXPECT_THAT(text_refusal([&] { task->make_model("transformer(block=8)"); }),
              AllOf(HasSubstr("a whole window of 9 characters"), HasSubstr("block=9 or more"),
                    HasSubstr("text(file=FILE, block=8)")));
  EXPECT_THAT(text_refusal([&] { task->make_model("transformer(width=10,heads=4)"); }),
              HasSubstr("share it equally"));
  EXPECT_THAT(text_refusal([&] { task->make_model("transformer(depth=2)"); }),
              HasSubstr("no parameter 'depth'"));
}

class TextFile : public testing::Test {
 protected:
  TextFile()
      : path_(std::filesystem::temp_directory_path() / ("starling (text) " + std::to_string(getpid()))) {
    const auto bytes = repeated(kPattern, 1000);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~TextFile() override { std::filesystem::remove(path_); }

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST_F(TextFile, MakesATask) {
  EXPECT_EQ(make_task("text:" + path())->size(Split::train), 899u / 64);
  EXPECT_EQ(make_task("text(file=\"" + path() + "\", block=10)")->size(Split::train), 89u);
}

TEST_F(TextFile, ErrorsNameTheFile) {
  EXPECT_THAT(text_refusal([&] { make_task("text(file=\"" + path() + "\", block=100)"); }),
              AllOf(HasSubstr(path() + " has 1000 characters: too short"), HasSubstr("1010")));
  EXPECT_THAT(text_refusal([&] { make_task("text:" + path() + "x"); }),
              HasSubstr("cannot read " + path() + "x: No such file"));
  for (const std::string none : {"text", "text:", "text()"})
    EXPECT_THAT(text_refusal([&] { make_task(none); }), HasSubstr("text needs file= (a text file")) << none;
}

}  // namespace
}  // namespace starling::train

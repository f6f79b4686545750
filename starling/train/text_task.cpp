#include <algorithm>
#include <utility>

#include "starling/data/partition.h"
#include "starling/train/batches.h"
#include "starling/train/evaluation.h"
#include "starling/train/task.h"

namespace starling::train {
namespace {

constexpr std::size_t kCharactersAtOnce = 16384;

class TextTask final : public Task {
 public:
  explicit TextTask(TextWindows text) : text_(std::move(text)) {}

  std::size_t size(Split split) const override { return text_.size(split); }

  std::vector<Shard> partition(const std::string& text, int workers, std::uint64_t seed) const override {
    return make_partition(text, text_.size(Split::train), workers, seed);
  }

  ModelPtr make_model(const std::string& text) const override {
    return starling::make_model(text, {.classes = static_cast<std::int64_t>(text_.alphabet().size()),
                                       .input = ModelInput::text,
                                       .length = static_cast<std::int64_t>(text_.block())});
  }

  torch::Tensor batch(const Model& model, std::span<const std::uint32_t> samples) const override {
    return windows(model, Split::train, samples);
  }

  torch::Tensor loss(Model& model, const torch::Tensor& batch) const override {
    const auto [logits, answers] = predict(model, batch);
    return torch::cross_entropy_loss(logits, answers);
  }

  Evaluation evaluate(Model& model, std::span<const std::uint32_t> samples) const override {
    const std::size_t most = std::max<std::size_t>(1, kCharactersAtOnce / text_.block());
    return evaluate_in_parts(samples, most, [&](std::span<const std::uint32_t> part) {
      const auto [logits, answers] = predict(model, windows(model, Split::test, part));
      return evaluate_logits(logits, answers);
    });
  }

 private:
  // The characters of each window and the one after it, on the model's device.
  torch::Tensor windows(const Model& model, Split split, std::span<const std::uint32_t> samples) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    const auto length = static_cast<std::int64_t>(text_.block()) + 1;
    torch::Tensor windows = torch::empty({count, length}, torch::kLong);
    auto* to = windows.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) {
      const auto window = text_.window(split, sample);
      to = std::copy(window.begin(), window.end(), to);
    }
    const auto parameters = model.parameters();
    return parameters.empty() ? windows : send_to(parameters[0].device(), windows);
  }

  // Logits (characters x alphabet) and the correct next characters.
  static std::pair<torch::Tensor, torch::Tensor> predict(Model& model, const torch::Tensor& windows) {
    const std::int64_t length = windows.size(1) - 1;
    const torch::Tensor logits = model.forward(windows.narrow(1, 0, length));
    return {logits.flatten(0, 1), windows.narrow(1, 1, length).flatten()};
  }

  TextWindows text_;
};

}  // namespace

std::unique_ptr<Task> make_text_task(TextWindows text) {
  return std::make_unique<TextTask>(std::move(text));
}

}  // namespace starling::train

#include "starling/train/evaluation.h"

namespace starling::train {

Task::Evaluation evaluate_logits(const torch::Tensor& logits, const torch::Tensor& classes) {
  return {.correct = logits.argmax(1).eq(classes).sum().item<double>(),
          .loss = torch::cross_entropy_loss(logits, classes, {}, at::Reduction::Sum).item<double>(),
          .count = static_cast<double>(classes.size(0))};
}

}  // namespace starling::train

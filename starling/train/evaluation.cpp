#include "starling/train/evaluation.h"

namespace starling::train {

Task::Evaluation evaluate_logits(const torch::Tensor& logits, const torch::Tensor& classes) {
  namespace F = torch::nn::functional;
  const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
  return {.correct = logits.argmax(1).eq(classes).sum().item<double>(),
          .loss = F::cross_entropy(logits, classes, sum).item<double>(),
          .count = static_cast<double>(classes.size(0))};
}

}  // namespace starling::train

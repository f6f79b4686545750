#include "starling/train/judge.h"

namespace starling {

Task::Judged judge_logits(const torch::Tensor& logits, const torch::Tensor& answers) {
  namespace F = torch::nn::functional;
  const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
  return {.right = logits.argmax(1).eq(answers).sum().item<double>(),
          .loss = F::cross_entropy(logits, answers, sum).item<double>(),
          .count = static_cast<double>(answers.size(0))};
}

}  // namespace starling

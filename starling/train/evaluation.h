#pragma once

#include <algorithm>

#include "starling/train/task.h"

namespace starling::train {

/// Compares logits (count x classes) with the correct classes.
Task::Evaluation evaluate_logits(const torch::Tensor& logits, const torch::Tensor& classes);

/// Calls evaluate(part) for at most `most` samples at a time, without gradients, and sums up.
template <typename F>
Task::Evaluation evaluate_in_parts(std::span<const std::uint32_t> samples, std::size_t most, F&& evaluate) {
  const torch::NoGradGuard no_grad;
  Task::Evaluation sum;
  for (; !samples.empty(); samples = samples.subspan(std::min(most, samples.size()))) {
    const Task::Evaluation part = evaluate(samples.first(std::min(most, samples.size())));
    sum.correct += part.correct;
    sum.loss += part.loss;
    sum.count += part.count;
  }
  return sum;
}

}  // namespace starling::train

#pragma once

#include <algorithm>

#include "starling/train/task.h"

namespace starling {

/// Adds up what logits (count x classes) say about the right answers.
Task::Judged judge_logits(const torch::Tensor& logits, const torch::Tensor& answers);

/// Calls judge(part) for at most `most` samples at a time, without gradients, and adds up.
template <typename F>
Task::Judged judge_in_parts(std::span<const std::uint32_t> samples, std::size_t most, F&& judge) {
  const torch::NoGradGuard no_grad;
  Task::Judged sum;
  for (; !samples.empty(); samples = samples.subspan(std::min(most, samples.size()))) {
    const Task::Judged part = judge(samples.first(std::min(most, samples.size())));
    sum.right += part.right;
    sum.loss += part.loss;
    sum.count += part.count;
  }
  return sum;
}

}  // namespace starling

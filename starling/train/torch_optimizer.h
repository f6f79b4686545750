#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "starling/train/torch_version.h"

namespace starling {

/// torch's optimizer of the name and settings that the grammar knows: `momentum(lr=0.05)`, `adamw(lr=0.001)`.
std::unique_ptr<torch::optim::Optimizer> make_torch_optimizer(std::string_view text,
                                                              const std::vector<torch::Tensor>& parameters);

/// Sets the learning rate of every group.
void set_learning_rate(torch::optim::Optimizer& optimizer, double lr);

/// Its settings and what it remembers (`memory`) as text, and back.
std::string saved_optimizer(const torch::optim::Optimizer& optimizer, bool memory = true);
void restore_optimizer(torch::optim::Optimizer& optimizer, const std::string& text, bool memory = true);

}  // namespace starling

#include "starling/train/gradient_pass.h"

#include <ATen/ops/_foreach_add.h>
#include <algorithm>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::train {
namespace {

// CUDA's libraries allocate and choose algorithms in the first batches, which cannot be recorded.
constexpr int kUsualBatches = 3;
constexpr std::size_t kMostSizes = 2;

// Adds the gradients of the loss to .grad, in one kernel for all parameters; returns those that it changed.
std::vector<torch::Tensor> add_gradients(const torch::Tensor& loss, const Model& model) {
  std::vector<torch::Tensor> trained;
  for (const torch::Tensor& parameter : model.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  const auto found = torch::autograd::grad({loss}, trained, {}, {}, false, /*allow_unused=*/true);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> all, added;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) continue;
    all.push_back(trained[i].grad());
    added.push_back(found[i]);
  }
  at::_foreach_add_(all, added);
  return all;
}

}  // namespace

GradientPass::GradientPass(const Task& task, Model& model, int batches_per_step, MakeGraph make_graph)
    : task_(task), model_(model), batches_per_step_(batches_per_step), make_graph_(std::move(make_graph)) {}

torch::Tensor GradientPass::loss(std::span<const std::uint32_t> samples) {
  const torch::Tensor batch = task_.batch(model_, samples);
  repeated_ = make_graph_ ? find_recording(batch) : nullptr;
  if (repeated_ == nullptr) {
    loss_ = task_.loss(model_, batch);
    return loss_.detach();
  }
  repeated_->batch.copy_(batch);
  repeated_->graph->replay();
  return repeated_->loss.clone();  // the next batch overwrites it
}

void GradientPass::backward() {
  if (repeated_ != nullptr)
    mark_written(repeated_->gradients);
  else
    part_of_step(loss_).backward();
}

torch::Tensor GradientPass::part_of_step(const torch::Tensor& loss) const {
  return batches_per_step_ > 1 ? loss / batches_per_step_ : loss;
}

GradientPass::Recording* GradientPass::find_recording(const torch::Tensor& batch) {
  const auto found = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const Recording& one) { return one.batch.sizes() == batch.sizes(); });
  if (found != recordings_.end() && !found->graph && usual_batches_ >= kUsualBatches) record(*found);
  if (found != recordings_.end() && found->graph) return &*found;
  if (found == recordings_.end() && recordings_.size() < kMostSizes) recordings_.push_back({batch.clone()});
  ++usual_batches_;
  return nullptr;
}

void GradientPass::record(Recording& recording) {
  auto graph = make_graph_();
  if (!graph) {
    make_graph_ = nullptr;
    return;
  }
  try {
    graph->record([this, &recording] {
      const torch::Tensor loss = task_.loss(model_, recording.batch);
      recording.gradients = add_gradients(part_of_step(loss), model_);
      recording.loss = loss.detach();
    });
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("this model's work cannot be recorded as a CUDA graph; train with --cuda-graph "
                    "false: {}",
                    error.what_without_backtrace()));
  }
  recording.graph = std::move(graph);
}

void mark_written(std::span<const torch::Tensor> gradients) {
  for (const torch::Tensor& gradient : gradients) gradient.unsafeGetTensorImpl()->bump_version();
}

}  // namespace starling::train

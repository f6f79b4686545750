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
    add_to_gradients(*repeated_);
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
    graph->record([this, &recording] { compute(recording); });
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("this model's work cannot be recorded as a CUDA graph; train with --cuda-graph "
                    "false: {}",
                    error.what_without_backtrace()));
  }
  recording.graph = std::move(graph);
}

// Forward and backward; the gradients stay where they were computed.
void GradientPass::compute(Recording& recording) const {
  const torch::Tensor loss = task_.loss(model_, recording.batch);
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : model_.parameters())
    if (parameter.requires_grad()) parameters.push_back(parameter);
  const auto found =
      torch::autograd::grad({part_of_step(loss)}, parameters, {}, {}, false, /*allow_unused=*/true);
  recording.trained.clear();
  recording.gradients.clear();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) continue;
    recording.trained.push_back(parameters[i]);
    recording.gradients.push_back(found[i]);
  }
  recording.loss = loss.detach();
}

// The only batch of a step lends its gradients to the trainer; those of several batches are added up.
void GradientPass::add_to_gradients(const Recording& recording) const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums, added;
  for (std::size_t i = 0; i < recording.trained.size(); ++i) {
    const torch::Tensor& parameter = recording.trained[i];
    const torch::Tensor& gradient = recording.gradients[i];
    if (parameter.grad().defined()) {
      sums.push_back(parameter.grad());
      added.push_back(gradient);
    } else {
      parameter.mutable_grad() = batches_per_step_ > 1 ? gradient.clone() : gradient;
    }
  }
  if (!sums.empty()) at::_foreach_add_(sums, added);
}

}  // namespace starling::train

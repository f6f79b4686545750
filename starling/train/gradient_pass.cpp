#include "starling/train/gradient_pass.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::train {
namespace {

// CUDA's libraries allocate and choose algorithms in the first batches, which cannot be recorded.
constexpr int kUsualBatches = 3;
constexpr std::size_t kMostSizes = 2;

std::vector<torch::Tensor> gradients_of(const Model& model) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : model.parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad());
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
    run_backward(loss_);
}

void GradientPass::run_backward(const torch::Tensor& loss) const {
  (batches_per_step_ > 1 ? loss / batches_per_step_ : loss).backward();
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
  std::vector<std::pair<torch::Tensor, std::int64_t>> before;
  for (const torch::Tensor& gradient : gradients_of(model_))
    before.emplace_back(gradient, gradient._version());
  try {
    graph->record([this, &recording] {
      const torch::Tensor loss = task_.loss(model_, recording.batch);
      run_backward(loss);
      recording.loss = loss.detach();
    });
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("this model's work cannot be recorded as a CUDA graph; train with --cuda-graph "
                    "false: {}",
                    error.what_without_backtrace()));
  }
  for (const auto& [gradient, version] : before)
    if (gradient._version() != version) recording.gradients.push_back(gradient);
  recording.graph = std::move(graph);
}

void mark_written(std::span<const torch::Tensor> gradients) {
  for (const torch::Tensor& gradient : gradients) gradient.unsafeGetTensorImpl()->bump_version();
}

}  // namespace starling::train

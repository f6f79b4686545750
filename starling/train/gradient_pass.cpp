#include "starling/train/gradient_pass.h"

#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::train {
namespace {

// CUDA's libraries allocate and choose algorithms in the first batches, which cannot be recorded.
constexpr int kUsualBatches = 3;

std::vector<torch::Tensor> gradients_of(const Model& model) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : model.parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad());
  return all;
}

}  // namespace

GradientPass::GradientPass(const Task& task, Model& model, int batches_per_step,
                           std::unique_ptr<DeviceGraph> graph)
    : task_(task), model_(model), batches_per_step_(batches_per_step), graph_(std::move(graph)) {}

torch::Tensor GradientPass::loss(std::span<const std::uint32_t> samples) {
  const torch::Tensor batch = task_.batch(model_, samples);
  replayed_ = graph_ && uses_graph(batch);
  if (!replayed_) {
    loss_ = task_.loss(model_, batch);
    return loss_.detach();
  }
  batch_.copy_(batch);
  graph_->replay();
  return loss_.clone();  // the next batch overwrites it
}

void GradientPass::backward() {
  if (replayed_)
    mark_written(gradients_);
  else
    (batches_per_step_ > 1 ? loss_ / batches_per_step_ : loss_).backward();
}

bool GradientPass::uses_graph(const torch::Tensor& batch) {
  if (batch_.defined()) return batch.sizes() == batch_.sizes();
  if (batch.sizes() != at::IntArrayRef(size_)) usual_batches_ = 0;
  size_ = batch.sizes().vec();
  if (usual_batches_++ < kUsualBatches) return false;
  record(batch);
  return true;
}

void GradientPass::record(const torch::Tensor& batch) {
  batch_ = batch.clone();
  std::vector<std::pair<torch::Tensor, std::int64_t>> before;
  for (const torch::Tensor& gradient : gradients_of(model_))
    before.emplace_back(gradient, gradient._version());
  try {
    graph_->record([this] {
      const torch::Tensor loss = task_.loss(model_, batch_);
      (batches_per_step_ > 1 ? loss / batches_per_step_ : loss).backward();
      loss_ = loss.detach();
    });
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("this model's work cannot be recorded as a CUDA graph; train with --cuda-graph "
                    "false: {}",
                    error.what_without_backtrace()));
  }
  for (const auto& [gradient, version] : before)
    if (gradient._version() != version) gradients_.push_back(gradient);
}

void mark_written(std::span<const torch::Tensor> gradients) {
  for (const torch::Tensor& gradient : gradients) gradient.unsafeGetTensorImpl()->bump_version();
}

}  // namespace starling::train

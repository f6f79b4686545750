#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "starling/train/task.h"
#include "starling/train/torch_cuda.h"

namespace starling::train {

/// The losses and gradients of a rank's batches. With a graph, the work of a batch, forward and backward, is
/// recorded once and repeated for all later batches of that size: one launch instead of hundreds, which take
/// longer than the work on small batches.
class GradientPass {
 public:
  /// Gradients are divided by `batches_per_step`. Without `graph`, every batch is computed as usual.
  GradientPass(const Task& task, Model& model, int batches_per_step, std::unique_ptr<DeviceGraph> graph);

  /// The mean loss of a batch of training samples.
  torch::Tensor loss(std::span<const std::uint32_t> samples);
  /// Adds the gradient of that loss to .grad.
  void backward();

 private:
  /// Whether the graph repeats the work on this batch; records it when the time has come.
  bool uses_graph(const torch::Tensor& batch);
  void record(const torch::Tensor& batch);

  const Task& task_;
  Model& model_;
  const int batches_per_step_;
  std::unique_ptr<DeviceGraph> graph_;
  int usual_batches_ = 0;                 // of one size in a row, before the recording
  std::vector<std::int64_t> size_;        // of these batches
  torch::Tensor batch_;                   // of the recorded work
  torch::Tensor loss_;                    // of the recorded work, or of the last batch
  std::vector<torch::Tensor> gradients_;  // to which the recorded work adds
  bool replayed_ = false;                 // the graph has computed the last batch
};

/// Tells the Trainer that these gradients were changed, which it cannot see if a graph did it.
void mark_written(std::span<const torch::Tensor> gradients);

}  // namespace starling::train

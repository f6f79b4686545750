#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "starling/train/task.h"
#include "starling/train/torch_cuda.h"

namespace starling::train {

/// The losses and gradients of a rank's batches. With graphs, the work of a batch, forward and backward, is
/// recorded once and repeated for later batches of that size: one launch instead of hundreds, which take
/// longer than the work on small batches. Batches of up to two sizes are recorded: the last of an epoch may
/// be shorter.
class GradientPass {
 public:
  /// Makes a graph; see make_graph().
  using MakeGraph = std::function<std::unique_ptr<DeviceGraph>()>;

  /// Gradients are divided by `batches_per_step`. If `make_graph` is empty or returns null, every batch is
  /// computed as usual.
  GradientPass(const Task& task, Model& model, int batches_per_step, MakeGraph make_graph = nullptr);

  /// The mean loss of a batch of training samples.
  torch::Tensor loss(std::span<const std::uint32_t> samples);
  /// Adds the gradient of that loss to .grad.
  void backward();

 private:
  /// The work on batches of one size.
  struct Recording {
    torch::Tensor batch;
    std::unique_ptr<DeviceGraph> graph = nullptr;  // null before it is recorded
    torch::Tensor loss = {};
    std::vector<torch::Tensor> trained = {};    // the parameters that have gradients
    std::vector<torch::Tensor> gradients = {};  // which it overwrites
  };

  /// The recording for this batch, which is made when the time has come; null if it is computed as usual.
  Recording* find_recording(const torch::Tensor& batch);
  void record(Recording& recording);
  void compute(Recording& recording) const;
  void add_to_gradients(const Recording& recording) const;
  torch::Tensor part_of_step(const torch::Tensor& loss) const;

  const Task& task_;
  Model& model_;
  const int batches_per_step_;
  MakeGraph make_graph_;
  int usual_batches_ = 0;
  std::deque<Recording> recordings_;
  torch::Tensor loss_;             // of the last batch, if it was computed as usual
  Recording* repeated_ = nullptr;  // which has computed the last batch
};

}  // namespace starling::train

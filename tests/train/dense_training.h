#pragma once

#include <string>
#include <vector>

#include "starling/topology/schedule.h"
#include "train/networks.h"

namespace starling::train {

/// A training run to be computed from the specification's equations.
struct DenseRun {
  std::string method;
  std::string topology;
  Rank size = 1;
  std::string network = "mlp";
  std::string optimizer = "sgd";
  Step steps = 5;
  bool equal_start = false;
};

/// Computes all ranks in one process with whole vectors, matrices and autograd; returns the final models.
std::vector<torch::Tensor> train_densely(const DenseRun& run);

/// The weights of one step as a matrix: row i holds the weights that rank i gives to each rank.
torch::Tensor weights_at(const Schedule& schedule, Step step);

}  // namespace starling::train

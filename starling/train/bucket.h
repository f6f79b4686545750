#pragma once

#include <string>
#include <vector>

#include "starling/flock/block.h"
#include "starling/method/update.h"
#include "starling/train/torch_version.h"

namespace starling {

/// One parameter and its place.
struct Placed {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor place;     // the view that the parameter's data are
  torch::Tensor gradient;  // the view that parameter.grad() is
  std::size_t group = 0;   // of the optimizer
  std::size_t bucket = 0;
  std::size_t segment = 0;  // of the bucket
  std::size_t offset = 0;   // elements from the bucket's begin
};

/// Parameters of one type that travel together. They and their gradients are views of flat memory, which
/// never moves.
struct Bucket {
  torch::Tensor x;
  torch::Tensor gradient;
  std::vector<std::size_t> parameters;  // indices into the list of all

  MutableBlock x_block() const;
  MutableBlock gradient_block() const;
  std::vector<Segment> segments(const std::vector<Placed>& all) const;
};

DType dtype_of_tensor(const torch::Tensor& tensor);

/// The parameters that an optimizer trains and that want gradients, in the order in which backward is likely
/// to produce these: the reverse of registration. Parameters that are shared are there once. Throws
/// InvalidArgument for what cannot be trained here.
std::vector<Placed> trained_parameters(torch::nn::Module& module, torch::optim::Optimizer& optimizer);

/// Moves the parameters into flat memory, in buckets of at least `bytes`, and gives them gradients.
std::vector<Bucket> flatten(std::vector<Placed>& parameters, std::size_t bytes);

}  // namespace starling

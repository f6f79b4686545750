#pragma once

#include <string>
#include <vector>

#include "starling/flock/block.h"
#include "starling/method/update.h"
#include "starling/train/module_tensors.h"
#include "starling/train/torch_version.h"

namespace starling {

/// One parameter and its place.
struct Placed {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor place;     // the view that the parameter's data are
  torch::Tensor gradient;  // what parameter.grad() is: flat memory with a version counter of its own
  std::size_t group = 0;   // of the optimizer
  std::size_t bucket = 0;
  std::size_t segment = 0;  // of the bucket
  std::size_t offset = 0;   // elements from the bucket's begin
};

/// Parameters of one type that travel together. They and their gradients are views of flat memory, which
/// never moves: x and gradient themselves or, for parameters on a device, `device_x` and `device_gradient`,
/// whose values go through x and gradient on the host.
struct Bucket {
  torch::Tensor x;
  torch::Tensor gradient;
  torch::Tensor device_x;
  torch::Tensor device_gradient;
  std::vector<std::size_t> parameters;  // indices into the list of all

  MutableBlock x_block() const;
  MutableBlock gradient_block() const;
  std::vector<Segment> segments(const std::vector<Placed>& all) const;

  // Between the host and the device; nothing where there is no device.
  void publish_x() const;
  void fetch_x() const;
  void fetch_gradient() const;
  void publish_gradient() const;
  void zero_gradient() const;
};

/// A parameter's part of a flat tensor.
torch::Tensor view_at(const torch::Tensor& flat, const Placed& placed);

DType dtype_of_tensor(const torch::Tensor& tensor);

/// The parameters that an optimizer (by its groups) trains and that want gradients, in the order in which
/// backward is likely to produce these: the reverse of registration. Parameters that are shared are there
/// once. Throws InvalidArgument for what cannot be trained here.
std::vector<Placed> trained_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups);

/// Those of the optimizer that want no gradient, with their names.
ModuleTensors::Named frozen_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups);

/// Moves the parameters into flat memory, in buckets of at least `bytes`, and gives them gradients.
std::vector<Bucket> flatten(std::vector<Placed>& parameters, std::size_t bytes);

}  // namespace starling

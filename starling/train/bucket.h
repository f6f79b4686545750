#pragma once

#include <string>
#include <vector>

#include "starling/flock/block.h"
#include "starling/method/update.h"
#include "starling/train/module_tensors.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// A trained parameter and its position in its bucket.
struct Placed {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor place;     // the view of flat memory that holds the parameter
  torch::Tensor gradient;  // parameter.grad(): a view of flat memory with its own version counter
  std::size_t group = 0;   // of the optimizer
  std::size_t bucket = 0;
  std::size_t segment = 0;  // index in the bucket
  std::size_t offset = 0;   // in elements, within the bucket
};

/// Parameters of one type that are sent together. They and their gradients are views of flat memory, which
/// never moves: of x and gradient or, if these are copies in other memory (on the host, because the flock
/// cannot exchange the parameters' device memory) or of another type (master weights), of `home_x` and
/// `home_gradient`.
struct Bucket {
  torch::Tensor x;
  torch::Tensor gradient;
  torch::Tensor home_x;
  torch::Tensor home_gradient;
  std::vector<std::size_t> parameters;  // indices into the list of all

  Buffer x_block() const;
  Buffer gradient_block() const;
  /// The memory that parameters' gradients are views of.
  Buffer home_gradient_block() const;
  std::vector<Segment> segments(const std::vector<Placed>& all) const;

  /// Whether x is in float32 and the parameters are not.
  bool has_master_weights() const { return home_x.defined() && home_x.dtype() != x.dtype(); }
  /// The parameters as a block that an update of x can also write; empty if they are x or in other memory.
  Buffer rounded_block() const;

  // Copies to the parameters (publish) and from them (fetch); no-ops if they are views of x. Master weights
  // that round to the parameter keep their value in fetch_x(), but not in replace_x().
  void publish_x() const;
  void fetch_x() const;
  void replace_x() const;
  void fetch_gradient() const;
  void publish_gradient() const;
  void zero_gradient() const;
};

/// A parameter's part of a flat tensor, with the strides of the parameter if these leave no gaps:
/// convolutions are fast in memory that is channels-last where their inputs are.
torch::Tensor view_at(const torch::Tensor& flat, const Placed& placed);

/// The parameters of an optimizer's groups that require gradients, in the order in which backward is likely
/// to compute these: the reverse of registration. Shared parameters appear once. Throws InvalidArgument for
/// parameters that cannot be trained.
std::vector<Placed> trained_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups);

/// The parameters of the optimizer that require no gradient, with their names.
ModuleTensors::Named frozen_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups);

/// Moves the parameters into flat memory, in buckets of at least `bytes`, and gives them gradients. If
/// `through_host`, buckets of parameters on a device have x and gradient on the host; if `master_weights`,
/// those of 16-bit parameters have them in float32.
std::vector<Bucket> flatten(std::vector<Placed>& parameters, std::size_t bytes, bool through_host = false,
                            bool master_weights = false);

/// Whether the parameter is of float16 or bfloat16.
bool is_short(const torch::Tensor& parameter);

}  // namespace starling::train

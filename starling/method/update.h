#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/flock/block.h"
#include "starling/kernel/update.h"

namespace starling::method {

/// A run of a block whose elements share settings, such as one tensor.
struct Segment {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t group = 0;  // the group of settings
  bool active = true;     // has a gradient in this step; other segments are not updated
  std::size_t rows = 0;   // of the parameter as a matrix, for codecs; 0 if it is not a matrix
  std::uint64_t id = 0;   // identifies the parameter on every rank and in every bucketing
};

/// The settings of a local optimizer, with torch's names; which of them apply depends on the optimizer.
struct Hyper {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled = false;  // AdamW's weight decay
};
/// One per group of segments. Shared: the owner of the settings may change them between steps.
using Hypers = std::shared_ptr<std::vector<Hyper>>;

/// A named vector of an optimizer or a method that is kept from step to step.
struct NamedState {
  std::string name;
  Buffer data;
};

/// The local optimizer of one block: (block, gradient) -> the block after its step.
class Update {
 public:
  virtual ~Update() = default;
  /// Identifies the optimizer, so that a checkpoint can tell whose state it has.
  virtual std::string name() const = 0;
  /// One pass over the whole block: y = the sum of `from`; x <- y + U(y, g) in active segments, x <- y
  /// elsewhere; also written to `copy` if given.
  virtual void apply(const UpdatePass& pass, std::span<const Segment> segments) = 0;
  /// All its state, for saving or overwriting.
  virtual std::vector<NamedState> state() { return {}; }
};
using UpdatePtr = std::unique_ptr<Update>;

/// x <- y, without any update and without the copies.
void start_from(const UpdatePass& pass);
/// The copies of x that a pass writes.
void write_copies(const UpdatePass& pass);
/// Both: a pass without any update.
void copy_through(const UpdatePass& pass);
/// `count` elements of a pass from element `begin` on; `terms` stores its summands.
UpdatePass part_of(const UpdatePass& pass, std::size_t begin, std::size_t count, std::vector<Term>& terms);

/// Make optimizers for a block like x: of its type and length, with vectors in its kind of memory.
UpdatePtr make_sgd(ConstBuffer x, std::size_t segments, Hypers hypers);
UpdatePtr make_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled);
/// AccumAdam, or AccumAdamW if `decoupled`; its moments take in the mean gradient of every s steps.
UpdatePtr make_accum_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled, long s);

/// A local optimizer by name, for blocks that torch does not update: sgd, momentum, nesterov, adam, adamw.
struct OptimizerFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  Hyper (*hyper)(const Parameters&);
  UpdatePtr (*make)(ConstBuffer x, std::size_t segments, Hypers hypers);
  std::vector<std::string> aliases = {};
};
std::vector<OptimizerFamily> optimizer_families();

/// The result of `parse_optimizer("adamw(lr=0.001)")`: its settings and the function that makes it.
/// parse_optimizer() throws InvalidArgument with what is valid.
struct Optimizer {
  Hyper hyper;
  UpdatePtr (*make)(ConstBuffer x, std::size_t segments, Hypers hypers);
};
Optimizer parse_optimizer(std::string_view text);
/// The canonical spelling, equal for all specs of the same optimizer.
std::string canonical_optimizer(std::string_view text);

}  // namespace starling::method

namespace starling {
using method::Optimizer;
using method::Update;
using method::UpdatePtr;
}  // namespace starling

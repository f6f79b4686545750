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
  std::size_t group = 0;  // of settings
  bool active = true;     // has a gradient in this step; what has none is not updated
  std::size_t rows = 0;   // of the parameter as a matrix, for codecs; 0 where it is none
  std::uint64_t id = 0;   // the same parameter's on every rank and in every bucketing
};

/// The settings of a local optimizer, as torch names them; which of them count depends on the optimizer.
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

/// Something of an optimizer or a method that lasts from step to step.
struct NamedState {
  std::string name;
  Buffer data;
};

/// The local optimizer of one block: (block, gradient) -> the block after its step.
class Update {
 public:
  virtual ~Update() = default;
  /// Which one it is, so that a checkpoint can tell whose it is.
  virtual std::string name() const = 0;
  /// One pass over the whole block: y = the sum of `from`; x <- y + U(y, g) where a segment is active, x <- y
  /// elsewhere; also to `copy` where given.
  virtual void apply(const UpdatePass& pass, std::span<const Segment> segments) = 0;
  /// Everything it remembers, to be saved or overwritten.
  virtual std::vector<NamedState> state() { return {}; }
};
using UpdatePtr = std::unique_ptr<Update>;

/// x <- y, without any update.
void copy_through(const UpdatePass& pass);
/// `count` elements of a pass, from element `begin` on; `terms` keeps its summands.
UpdatePass part_of(const UpdatePass& pass, std::size_t begin, std::size_t count, std::vector<Term>& terms);

/// Of a block like x: of its type and length, with vectors in its memory.
UpdatePtr make_sgd(ConstBuffer x, std::size_t segments, Hypers hypers);
UpdatePtr make_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled);
/// AccumAdam, or AccumAdamW where `decoupled`; moments take up the mean gradient of every s steps.
UpdatePtr make_accum_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled, long s);

/// A local optimizer by name, for blocks that are not torch's: sgd, momentum, nesterov, adam, adamw.
struct OptimizerFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  Hyper (*hyper)(const Parameters&);
  UpdatePtr (*make)(ConstBuffer x, std::size_t segments, Hypers hypers);
  std::vector<std::string> aliases = {};
};
std::vector<OptimizerFamily> optimizer_families();

/// `parse_optimizer("adamw(lr=0.001)")`: its settings and how to make one. Throws listing what is valid.
struct Optimizer {
  Hyper hyper;
  UpdatePtr (*make)(ConstBuffer x, std::size_t segments, Hypers hypers);
};
Optimizer parse_optimizer(std::string_view text);
/// The one spelling of all specs that mean the same optimizer.
std::string canonical_optimizer(std::string_view text);

}  // namespace starling::method

namespace starling {
using method::Optimizer;
using method::Update;
using method::UpdatePtr;
}  // namespace starling

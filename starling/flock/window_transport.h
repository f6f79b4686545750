#pragma once

#include <functional>
#include <optional>

#include "starling/base/buffer.h"
#include "starling/base/types.h"

namespace starling::flock {

/// A value with its weight, p and step.
struct Deposit {
  ConstBuffer value;
  double weight = 1;  // the factor for the value
  double p = 1;       // with its weight
  Step stamp = 0;
  bool add = false;  // to the slot's content, instead of replacing it
};

/// Access to one rank's part of a window, by any rank (its owner included). All values are of the window's
/// type and length.
class WindowTransport {
 public:
  virtual ~WindowTransport() = default;

  /// Whether that part has a slot for this rank. deposit() writes to the slot as a whole.
  virtual bool has_slot() const = 0;
  virtual void deposit(const Deposit& deposit) = 0;

  enum class Reading { done, not_readable, lost };
  using Reader = std::function<void(const ConstBuffer& value, double p, Step stamp)>;
  /// Calls `reader` with the tensor as of its owner's last update.
  virtual Reading read(const Reader& reader) = 0;

  /// Moves the tensor by weight * (mine - tensor) and writes the change to `moved`. Returns the tensor's
  /// stamp; empty if its owner is lost.
  virtual std::optional<Step> average_with(ConstBuffer mine, double weight, Buffer moved) = 0;

  /// The owner's last reported step. Callers of the transport report theirs with tell_progress().
  virtual Step progress() const = 0;
  virtual void tell_progress(Step steps) = 0;

  /// Takes the mutex and returns nothing, or returns the rank that holds it. `look`: checks whether the
  /// holder is still alive.
  virtual std::optional<Rank> lock(bool look) = 0;
  virtual void unlock() = 0;

  /// Frees the memory; the transport is not used any more.
  virtual void withdraw() {}
};

}  // namespace starling::flock

#pragma once

#include <functional>
#include <optional>

#include "starling/base/types.h"

namespace starling {

/// A value, and what travels with it.
struct Deposit {
  const void* value = nullptr;
  double weight = 1;  // to be multiplied with
  double p = 1;       // with its weight
  Step stamp = 0;
  bool add = false;  // to what is there
};

/// How a rank reaches the part of a window that another rank has, or its own.
class WindowWay {
 public:
  virtual ~WindowWay() = default;

  /// Whether that part has a slot for this rank; what `deposit` puts there is seen whole.
  virtual bool has_slot() const = 0;
  virtual void deposit(const Deposit& deposit) = 0;

  enum class Reading { done, not_readable, lost };
  using Reader = std::function<void(const std::byte* data, double p, Step stamp)>;
  /// Calls `reader` with the tensor as of its owner's last update.
  virtual Reading read(const Reader& reader) = 0;

  /// The tensor goes weight * (mine - it) towards `mine`; `moved` gets how far. Its stamp, or nothing where
  /// its owner is lost.
  virtual std::optional<Step> meet(const void* mine, double weight, void* moved) = 0;

  /// What its owner has told last; and told by who goes this way.
  virtual Step progress() const = 0;
  virtual void tell_progress(Step steps) = 0;

  /// Takes the mutex: empty where that was possible, else who holds it. `look` whether that one still lives.
  virtual std::optional<Rank> lock(bool look) = 0;
  virtual void unlock() = 0;

  /// Gives memory back; nobody goes this way any more.
  virtual void withdraw() {}
};

}  // namespace starling

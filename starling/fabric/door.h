#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "starling/base/types.h"

namespace starling {

class Fabric;

/// One attempt to let newcomers in.
struct Opening {
  std::uint64_t number = 0;                // of the attempt, never used again; 0: nobody waits
  std::vector<std::uint64_t> newcomers{};  // their tickets, in the order of their ranks to be
};

/// Where processes wait that want to become ranks of a job that runs. The members let them in by making a new
/// fabric together: of the members in their order, then the newcomers. The old one serves until then, and on
/// where that fails.
class Door {
 public:
  virtual ~Door() = default;

  /// By one member: who waits and answers. Who does not answer soon has died, and is forgotten.
  virtual Opening call() = 0;
  /// By all members, of whom this one is the `place`-th of so many: the new fabric. Throws where it does not
  /// come about in a bounded time.
  virtual std::shared_ptr<Fabric> open(const Opening& opening, Rank place, Rank members) = 0;
  /// By one member afterwards: all newcomers have it, too.
  virtual bool all_are_in(const Opening& opening) = 0;
  /// By all members: whether the new fabric counts from now on. Otherwise newcomers wait on.
  virtual void close(const Opening& opening, bool good) = 0;

  /// The opening by which this fabric was made; 0 for the first of a job.
  virtual std::uint64_t number() const = 0;
  /// So many of its last ranks came in then.
  virtual Rank newcomers() const = 0;
};

/// What is made around a fabric that came about by an opening.
using FinishFabric = std::function<std::shared_ptr<Fabric>(std::shared_ptr<Fabric> fabric)>;

/// How long making the new fabric may take where joining may take so long: members stand still meanwhile.
constexpr std::chrono::milliseconds opening_limit(std::chrono::milliseconds join_timeout) {
  return std::min(join_timeout / 2, std::chrono::milliseconds(20'000));
}

}  // namespace starling

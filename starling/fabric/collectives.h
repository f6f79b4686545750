#pragma once

#include <cstdint>
#include <functional>

#include "starling/base/buffer.h"

namespace starling::fabric {

/// Collective operations of the engine under a fabric (e.g. MPI_Allreduce), with the engine's own order of
/// additions. Owned by the fabric. Thread-safe.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Whether the engine can sum elements of this type.
  virtual bool sums(DType dtype) const = 0;
  /// The next operation number, from 0. Called on rank 0 only, which numbers the operations of all ranks.
  virtual std::uint64_t take_number() = 0;
  /// Starts all-reduce `number`, which every rank must start: every element becomes its sum over all ranks.
  /// Never blocks. Sums run one after another in the order of their numbers. `done` is called on a thread of
  /// the engine and must not block; it is never called after the fabric was destroyed. Throws InvalidArgument
  /// for memory that the engine cannot access.
  virtual void sum(std::uint64_t number, Buffer elements, std::function<void()> done) = 0;
};

}  // namespace starling::fabric

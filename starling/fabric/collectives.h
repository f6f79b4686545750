#pragma once

#include <cstdint>
#include <functional>

#include "starling/base/dtype.h"

namespace starling {

/// What an engine does for all ranks of a fabric at once, in its own order of additions. Thread-safe.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Whether it can add up such elements.
  virtual bool sums(DType dtype) const = 0;
  /// For rank 0, which numbers the operations of everybody: the next one, from 0.
  virtual std::uint64_t take_number() = 0;
  /// Sum `number` of all ranks, who all start it: data[i] becomes the sum of everybody's. Never blocks; sums
  /// are done one after the other by their numbers, and `done` is called on a thread of the engine. It must
  /// not block, and is not called any more once the fabric goes.
  virtual void sum(std::uint64_t number, DType dtype, void* data, std::size_t count,
                   std::function<void()> done) = 0;
};

}  // namespace starling

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "starling/record/checkpoint_file.h"

namespace starling::record {

/// A copy of a rank's state in host memory, which is kept for the next copy.
class StateSnapshot {
 public:
  /// Copies the parts. For those on a device, the copy is enqueued behind the work that writes them: they may
  /// change by work enqueued later, but the snapshot is complete only after await().
  void take(std::span<const StatePart> parts);
  /// Waits until the devices have copied. Throws Error if one has failed.
  void await() const;

  /// The parts in host memory.
  std::span<const StatePart> parts() const { return parts_; }

 private:
  void reserve(std::size_t bytes, bool pinned);

  std::vector<StatePart> parts_;
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_ = 0;
  bool pinned_ = false;
  std::vector<std::shared_ptr<void>> copied_;  // the moments after the copies, one per stream
};

}  // namespace starling::record

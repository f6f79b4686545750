#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

/// Blocks of device memory, of one size, that the ranks of a group lend each other: a rank writes its own and
/// reads those of others at any time, without their help. What a rank has lent stays readable when it is
/// stopped or dead. One thread at a time; destroyed before its fabric, which gives this rank's blocks back
/// and ends its use of the others', once work on them has ended.
class DevicePool {
 public:
  virtual ~DevicePool() = default;

  /// What the others call this rank's blocks.
  virtual std::uint32_t number() const = 0;
  /// With the peers' numbers, once they have opened theirs: waits until this rank can lend to those that
  /// live. Throws Error after the deadline.
  virtual void connect(const std::map<Rank, std::uint32_t>& peers, Deadline deadline) = 0;
  /// Allocates the first block and lends it, so that it shows now whether that is possible. Throws what
  /// take() throws.
  virtual void prepare(std::span<const Rank> readers) = 0;
  /// A new block of this rank's, on the device on which the pool was opened; these ranks can find it when
  /// this returns. Throws Error with the bytes needed and free where device memory is exhausted.
  virtual std::uint64_t take(std::span<const Rank> readers) = 0;
  /// A block that this rank or a peer has taken. Throws Error where it cannot be had.
  virtual std::byte* find(Rank owner, std::uint64_t block) = 0;
};

/// Opens pools: an optional part of a fabric, and owned by it. Thread-safe.
class DevicePools {
 public:
  virtual ~DevicePools() = default;

  /// On the calling thread's device. The peers do the same.
  virtual std::unique_ptr<DevicePool> open(std::size_t block_bytes, std::span<const Rank> peers) = 0;
};

}  // namespace starling::fabric

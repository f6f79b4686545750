#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "starling/base/os/descriptor.h"
#include "starling/fabric/cuda/descriptor_exchange.h"
#include "starling/fabric/device_pool.h"

namespace starling::fabric::cuda {

class Watcher;

/// The pieces that others have lent to this rank and that no pool here has used yet. Makes no call of the
/// device. Owned by the cuda fabric. Thread-safe.
class BorrowedPieces {
 public:
  struct Piece {
    Descriptor descriptor;
    std::uint64_t bytes = 0;
  };

  void add(Rank owner, const LentPiece& piece, Descriptor descriptor);
  std::optional<Piece> take(Rank owner, std::uint32_t pool, std::uint32_t piece);
  /// What is there of this pool, which its owner has closed.
  void forget(Rank owner, std::uint32_t pool);

 private:
  std::mutex mutex_;
  std::map<std::tuple<Rank, std::uint32_t, std::uint32_t>, Piece> pieces_;  // by owner, pool and piece
};

/// Pools of device memory, whose blocks lie in pieces that readers map as a whole. Owned by the cuda fabric.
class Pools final : public DevicePools {
 public:
  Pools(Fabric& fabric, Watcher& watcher, BorrowedPieces& borrowed)
      : fabric_(fabric), watcher_(watcher), borrowed_(borrowed) {}

  std::unique_ptr<DevicePool> open(std::size_t block_bytes, std::span<const Rank> peers) override;

 private:
  Fabric& fabric_;
  Watcher& watcher_;
  BorrowedPieces& borrowed_;
  std::atomic<std::uint32_t> opened_{0};
};

}  // namespace starling::fabric::cuda

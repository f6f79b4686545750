#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "starling/fabric/fabric.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/layout.h"

namespace starling::fabric::local {

/// The receiving side of a rank: its read position in each sender's message list. Owned by the local fabric.
/// Thread-safe.
class Inbox final : public Arrival::Owner {
 public:
  /// `ours` returns false in a forked child, which must not release its parent's messages.
  Inbox(Rank rank, const Regions& regions, std::function<bool()> ours);

  std::optional<Arrival> poll(Rank source);
  /// Whether a message can be polled. Costs two loads. The load of the payload offset is sequentially
  /// consistent because sleep() relies on its order after the increment of `sleepers`.
  bool waiting(Rank source) const {
    return position(source).head.load(std::memory_order_acquire)->load(std::memory_order_seq_cst) != 0;
  }

 private:
  /// The read position in one sender's list.
  struct alignas(64) ReadPosition {
    std::atomic<const std::atomic<std::uint64_t>*> head{
        nullptr};  // becomes non-zero when the next message is posted
    Chunk* chunk = nullptr;
    std::size_t next = 0;
  };

  void done_with(void* handle) noexcept override;
  ReadPosition& position(Rank source) const { return positions_[static_cast<std::size_t>(source)]; }

  const Regions& regions_;
  std::function<bool()> ours_;
  std::mutex mutex_;
  std::unique_ptr<ReadPosition[]> positions_;
};

}  // namespace starling::fabric::local

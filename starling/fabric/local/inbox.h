#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "starling/fabric/fabric.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/layout.h"

namespace starling::local {

/// The receiving side of a rank: how far it has read each sender's list. Thread-safe.
class Inbox final : public Arrival::Owner {
 public:
  /// `ours` is false in a forked child, whose copies are not its own.
  Inbox(Rank rank, const Regions& regions, std::function<bool()> ours);

  std::optional<Arrival> poll(Rank source);
  /// Whether there is something to poll. Two loads.
  bool waiting(Rank source) const {
    return place(source).head.load(std::memory_order_acquire)->load(std::memory_order_seq_cst) != 0;
  }

 private:
  /// How far a sender's list was read.
  struct alignas(64) Place {
    std::atomic<const std::atomic<std::uint64_t>*> head{nullptr};  // what changes when the next one comes
    Chunk* chunk = nullptr;
    std::size_t next = 0;
  };

  void done_with(void* handle) noexcept override;
  Place& place(Rank source) const { return places_[static_cast<std::size_t>(source)]; }

  const Regions& regions_;
  std::function<bool()> ours_;
  std::mutex mutex_;
  std::unique_ptr<Place[]> places_;
};

}  // namespace starling::local

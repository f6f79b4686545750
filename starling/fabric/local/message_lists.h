#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/heap.h"
#include "starling/fabric/local/layout.h"

// The two ends of the message lists in shared memory; local.cpp defines them beside the fabric they serve.
namespace starling::fabric::local {

/// The sending side of a rank: memory for messages in its own region, and one message list per destination,
/// which the destination reads. Owned by the local fabric. Thread-safe.
class Outbox final : public Outgoing::Owner {
 public:
  /// `alive` is called only when memory is short.
  Outbox(Rank rank, Rank size, Region& region, std::uint64_t limit, std::function<bool(Rank)> alive);

  Outgoing reserve(std::size_t bytes);
  /// Allocates zeroed memory that is not a message, see Fabric::expose.
  std::uint64_t expose(std::size_t bytes);
  void withdraw(std::uint64_t memory, std::size_t bytes);
  /// False if the destination is known to be dead; then nothing was sent.
  bool post(const OutgoingRange& range, const MessageHeader& header, Rank to);
  /// Whether `to` holds more than `bytes` unreleased.
  bool backlogged(Rank to, std::uint64_t bytes);

 private:
  /// A destination's claim to a range of a payload, until it sets the flag `released`.
  struct Claim {
    const std::atomic<std::uint8_t>* released;
    Rank to;
    std::size_t bytes;
  };
  /// A payload: in use by the caller (`held`), by readers, or free.
  struct Slot {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    bool held = false;
    std::vector<Claim> claims;
  };
  /// The list of messages to one destination.
  struct Destination {
    Chunk* tail = nullptr;
    std::size_t next = 0;      // free slot of the tail
    std::uint64_t unread = 0;  // bytes that it had claims to at the last reclaim()
    std::deque<Chunk*> older;  // reused once the reader has passed them and released every payload
    bool dead = false;
  };

  void give_back(void* handle) noexcept override;
  std::uint64_t allocate(std::size_t bytes);
  Chunk* fresh_chunk(Destination& destination);
  bool reclaim_slot(Slot& slot);
  void reclaim();
  void release_dead_claims();
  void free_slot(Slot* slot);
  std::string full_message(std::size_t bytes) const;

  Rank rank_;
  Region& region_;
  std::function<bool(Rank)> alive_;
  std::mutex mutex_;
  Heap heap_;
  std::vector<Destination> destinations_;
  std::vector<std::unique_ptr<Slot>> slots_;  // owns every slot ever made
  std::vector<Slot*> idle_;
  std::vector<Slot*> sent_;  // with claims
  std::size_t reclaim_at_;   // reclaim() when this many slots are sent
};

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

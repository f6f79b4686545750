#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/fabric/local/heap.h"
#include "starling/fabric/local/layout.h"

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

}  // namespace starling::fabric::local

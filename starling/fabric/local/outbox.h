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

namespace starling::local {

/// The sending side of a rank: memory for messages in its own region, and the lists of entries that other
/// ranks read. Thread-safe.
class Outbox final : public Outgoing::Owner {
 public:
  /// `alive` is asked only when memory is short.
  Outbox(Rank rank, Rank size, Region& region, std::uint64_t limit, std::function<bool(Rank)> alive);

  Outgoing reserve(std::size_t bytes);
  /// Zeroed memory that is no message.
  std::uint64_t expose(std::size_t bytes);
  void withdraw(std::uint64_t memory, std::size_t bytes);
  /// False when the destination is known to be dead and nothing was sent.
  bool post(const OutgoingRange& range, const MessageHeader& header, Rank to);
  /// Whether `to` holds more than so many bytes.
  bool backlogged(Rank to, std::uint64_t bytes);

 private:
  /// A destination's right to a range of a payload, until it says that it has done with it.
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
  struct Line {
    Chunk* tail = nullptr;
    std::size_t next = 0;      // free entry of the tail
    std::uint64_t unread = 0;  // bytes that it had claims to when somebody looked last
    std::deque<Chunk*> older;  // reused once their reader has passed them and released every payload
    bool dead = false;
  };

  void give_back(void* handle) noexcept override;
  std::uint64_t allocate(std::size_t bytes);
  Chunk* fresh_chunk(Line& line);
  bool reclaim_slot(Slot& slot);
  void reclaim();
  void bury_the_dead();
  void free_slot(Slot* slot);
  std::string full_message(std::size_t bytes) const;

  Rank rank_;
  Region& region_;
  std::function<bool(Rank)> alive_;
  std::mutex mutex_;
  Heap heap_;
  std::vector<Line> lines_;
  std::vector<std::unique_ptr<Slot>> slots_;  // all that were ever made
  std::vector<Slot*> idle_;
  std::vector<Slot*> sent_;  // with claims
  std::size_t look_at_;      // so many sent: time to see which have come back
};

}  // namespace starling::local

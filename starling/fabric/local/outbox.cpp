#include "starling/fabric/local/outbox.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <new>

#include "starling/base/error.h"

namespace starling::fabric::local {
namespace {

// Checking whether a reader has released a message fetches a cache line that the reader owns. Small messages
// are checked only when at least this many are unreleased; large ones every time, because reusing their
// memory while it is in the cache pays off.
constexpr std::size_t kFewest = 16;
constexpr std::size_t kManyLarge = 64;

}  // namespace

Outbox::Outbox(Rank rank, Rank size, Region& region, std::uint64_t limit, std::function<bool(Rank)> alive)
    : rank_(rank),
      region_(region),
      alive_(std::move(alive)),
      heap_(region, heap_offset(rank, size), limit),
      destinations_(static_cast<std::size_t>(size)),
      reclaim_at_(kFewest) {
  for (Rank to = 0; to < size; ++to)
    destinations_[static_cast<std::size_t>(to)].tail = region_.as<Chunk>(chunk_offset(to));
}

Outgoing Outbox::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // A message of zero bytes needs no memory, only an offset that is not 0.
  const std::uint64_t offset = bytes == 0 ? sizeof(Control) : allocate(bytes);
  if (idle_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    idle_.push_back(slots_.back().get());
  }
  Slot* slot = idle_.back();
  idle_.pop_back();
  slot->offset = offset;
  slot->bytes = bytes;
  slot->held = true;
  return {this, slot, {region_.at(offset), bytes}};
}

std::uint64_t Outbox::expose(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t offset = allocate(bytes);
  std::memset(region_.at(offset), 0, bytes);
  return offset;
}

void Outbox::withdraw(std::uint64_t memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  heap_.free(memory, bytes);
}

bool Outbox::post(const OutgoingRange& range, const MessageHeader& header, Rank to) {
  const std::lock_guard lock(mutex_);
  Destination& destination = destinations_[static_cast<std::size_t>(to)];
  if (destination.dead) return false;
  auto* slot = static_cast<Slot*>(range.handle());
  if (destination.next == kSlots) {
    Chunk* chunk = fresh_chunk(destination);
    const auto offset = reinterpret_cast<std::byte*>(chunk) - region_.at(0);
    destination.tail->slots[kSlots].payload.store(static_cast<std::uint64_t>(offset),
                                                  std::memory_order_seq_cst);
    destination.older.push_back(destination.tail);
    destination.tail = chunk;
    destination.next = 0;
  }
  if (slot->claims.empty()) sent_.push_back(slot);
  slot->claims.push_back({&destination.tail->released[destination.next], to, range.bytes().size()});
  destination.unread += range.bytes().size();
  MessageSlot& message = destination.tail->slots[destination.next++];
  message.header = header;
  message.header.bytes = range.bytes().size();
  // This store publishes the message: a sender killed before it has sent nothing, after it the whole message.
  message.payload.store(slot->offset + range.offset(), std::memory_order_seq_cst);
  return true;
}

bool Outbox::backlogged(Rank to, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Destination& destination = destinations_[static_cast<std::size_t>(to)];
  if (destination.unread <= bytes) return false;
  reclaim();
  return destination.unread > bytes;
}

Chunk* Outbox::fresh_chunk(Destination& destination) {
  constexpr std::size_t kLook = 4;  // different chunks each time: a message held for long blocks only its own
  const auto released = [](const std::atomic<std::uint8_t>& flag) {
    return flag.load(std::memory_order_acquire) != 0;
  };
  for (std::size_t look = std::min(kLook, destination.older.size()); look > 0; --look) {
    Chunk* chunk = destination.older.front();
    destination.older.pop_front();
    if (!released(chunk->passed) || !std::all_of(chunk->released.begin(), chunk->released.end(), released)) {
      destination.older.push_back(chunk);
      continue;
    }
    reclaim();  // settles the claims that point into this chunk before it is overwritten
    for (MessageSlot& message : chunk->slots) message.payload.store(0, std::memory_order_relaxed);
    for (auto& flag : chunk->released) flag.store(0, std::memory_order_relaxed);
    chunk->passed.store(0, std::memory_order_relaxed);
    return chunk;
  }
  return new (region_.at(allocate(sizeof(Chunk)))) Chunk;
}

// Reuses released memory first. Before the region grows, messages to dead ranks are released, too.
std::uint64_t Outbox::allocate(std::size_t bytes) {
  const bool small = heap_.has_small(bytes);
  if (small ? sent_.size() >= reclaim_at_ : sent_.size() < kManyLarge || sent_.size() >= reclaim_at_)
    reclaim();
  std::uint64_t offset = heap_.allocate(bytes, /*may_grow=*/false);
  if (offset == 0) {
    release_dead_claims();
    reclaim();
    offset = heap_.allocate(bytes, /*may_grow=*/true);
  }
  if (offset == 0) throw Error(full_message(bytes));
  return offset;
}

void Outbox::give_back(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  auto* slot = static_cast<Slot*>(handle);
  slot->held = false;
  if (slot->claims.empty()) free_slot(slot);
}

// True if no claim is left.
bool Outbox::reclaim_slot(Slot& slot) {
  std::erase_if(slot.claims, [&](const Claim& claim) {
    Destination& destination = destinations_[static_cast<std::size_t>(claim.to)];
    const bool done = claim.released->load(std::memory_order_acquire) != 0 || destination.dead;
    if (done) destination.unread -= claim.bytes;
    return done;
  });
  return slot.claims.empty();
}

void Outbox::reclaim() {
  std::erase_if(sent_, [&](Slot* slot) {
    if (!reclaim_slot(*slot)) return false;
    if (!slot->held) free_slot(slot);
    return true;
  });
  reclaim_at_ = std::max(kFewest, 2 * sent_.size());
}

void Outbox::release_dead_claims() {
  for (std::size_t to = 0; to < destinations_.size(); ++to)
    if (static_cast<Rank>(to) != rank_ && !destinations_[to].dead && !alive_(static_cast<Rank>(to)))
      destinations_[to].dead = true;
}

void Outbox::free_slot(Slot* slot) {
  if (slot->bytes > 0) heap_.free(slot->offset, slot->bytes);
  idle_.push_back(slot);
}

std::string Outbox::full_message(std::size_t bytes) const {
  std::map<Rank, std::uint64_t> held;
  for (const Slot* slot : sent_)
    for (const Claim& claim : slot->claims) held[claim.to] += claim.bytes;
  std::string holders;
  for (const auto& [to, amount] : held)
    holders += fmt::format("{}rank {} holds {}", holders.empty() ? "" : ", ", to, amount);
  return fmt::format("no room for a message of {} bytes: {} of {} bytes are waiting to be read ({})", bytes,
                     heap_.used(), heap_.limit(), holders.empty() ? "no rank holds any" : holders);
}

}  // namespace starling::fabric::local

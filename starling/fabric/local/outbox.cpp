#include "starling/fabric/local/outbox.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <new>

#include "starling/base/error.h"

namespace starling::local {
namespace {

// Looking whether a reader has done with a message fetches a cache line that it owns: small messages wait
// until this many are out, large ones are looked at each time, because their memory is still warm.
constexpr std::size_t kFewest = 16;
constexpr std::size_t kManyLarge = 64;

}  // namespace

Outbox::Outbox(Rank rank, Rank size, Region& region, std::uint64_t limit, std::function<bool(Rank)> alive)
    : rank_(rank),
      region_(region),
      alive_(std::move(alive)),
      heap_(region, heap_offset(rank, size), limit),
      lines_(static_cast<std::size_t>(size)),
      look_at_(kFewest) {
  for (Rank to = 0; to < size; ++to)
    lines_[static_cast<std::size_t>(to)].tail = region_.as<Chunk>(chunk_offset(to));
}

Outgoing Outbox::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // Zero bytes need no memory, only an offset that is not 0.
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
  Line& line = lines_[static_cast<std::size_t>(to)];
  if (line.dead) return false;
  auto* slot = static_cast<Slot*>(range.handle());
  if (line.next == kEntries) {
    Chunk* chunk = fresh_chunk(line);
    const auto offset = reinterpret_cast<std::byte*>(chunk) - region_.at(0);
    line.tail->entries[kEntries].payload.store(static_cast<std::uint64_t>(offset), std::memory_order_seq_cst);
    line.older.push_back(line.tail);
    line.tail = chunk;
    line.next = 0;
  }
  if (slot->claims.empty()) sent_.push_back(slot);
  slot->claims.push_back({&line.tail->released[line.next], to, range.bytes().size()});
  line.unread += range.bytes().size();
  Entry& entry = line.tail->entries[line.next++];
  entry.header = header;
  entry.header.bytes = range.bytes().size();
  // The one store that makes the message exist: a sender killed before it has sent nothing, after it all.
  entry.payload.store(slot->offset + range.offset(), std::memory_order_seq_cst);
  return true;
}

bool Outbox::backlogged(Rank to, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Line& line = lines_[static_cast<std::size_t>(to)];
  if (line.unread <= bytes) return false;
  reclaim();
  return line.unread > bytes;
}

Chunk* Outbox::fresh_chunk(Line& line) {
  constexpr std::size_t kLook = 4;  // different ones each time: a message held for long keeps only its own
  const auto released = [](const std::atomic<std::uint8_t>& flag) {
    return flag.load(std::memory_order_acquire) != 0;
  };
  for (std::size_t look = std::min(kLook, line.older.size()); look > 0; --look) {
    Chunk* chunk = line.older.front();
    line.older.pop_front();
    if (!released(chunk->passed) || !std::all_of(chunk->released.begin(), chunk->released.end(), released)) {
      line.older.push_back(chunk);
      continue;
    }
    reclaim();  // claims that point into it are settled before it is written anew
    for (Entry& entry : chunk->entries) entry.payload.store(0, std::memory_order_relaxed);
    for (auto& flag : chunk->released) flag.store(0, std::memory_order_relaxed);
    chunk->passed.store(0, std::memory_order_relaxed);
    return chunk;
  }
  return new (region_.at(allocate(sizeof(Chunk)))) Chunk;
}

// What readers gave back is used first. Before the region grows, messages to the dead are given up.
std::uint64_t Outbox::allocate(std::size_t bytes) {
  const bool small = heap_.has_small(bytes);
  if (small ? sent_.size() >= look_at_ : sent_.size() < kManyLarge || sent_.size() >= look_at_) reclaim();
  std::uint64_t offset = heap_.allocate(bytes, /*may_grow=*/false);
  if (offset == 0) {
    bury_the_dead();
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

// True when nobody claims it any more.
bool Outbox::reclaim_slot(Slot& slot) {
  std::erase_if(slot.claims, [&](const Claim& claim) {
    Line& line = lines_[static_cast<std::size_t>(claim.to)];
    const bool done = claim.released->load(std::memory_order_acquire) != 0 || line.dead;
    if (done) line.unread -= claim.bytes;
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
  look_at_ = std::max(kFewest, 2 * sent_.size());
}

void Outbox::bury_the_dead() {
  for (std::size_t to = 0; to < lines_.size(); ++to)
    if (static_cast<Rank>(to) != rank_ && !lines_[to].dead && !alive_(static_cast<Rank>(to)))
      lines_[to].dead = true;
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
                     heap_.used(), heap_.limit(), holders.empty() ? "nobody holds any" : holders);
}

}  // namespace starling::local

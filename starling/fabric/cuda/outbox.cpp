#include "starling/fabric/cuda/outbox.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <thread>

#include "starling/base/error.h"

namespace starling::fabric::cuda {
namespace {

constexpr std::size_t kSmallest = 256;
constexpr std::size_t kLargestShared = std::size_t{1} << 20;  // larger slots have a piece of their own
constexpr std::size_t kSharedPiece = std::size_t{2} << 20;
constexpr std::uint32_t kLastReady = kernel::kLost - 8;  // beyond this the slot gets another line
constexpr std::chrono::seconds kWorkLimit{1};            // for work on memory that will be freed

std::size_t rounded(std::size_t bytes) {
  return bytes == 0 || bytes > kLargestShared ? bytes : std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace

Outbox::~Outbox() {
  for (const auto& piece : pieces_) {
    const bool ended = std::all_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot->piece != piece.get() || slot->ready.reached();
    });
    if (!ended) continue;  // the device has failed
    try {
      kernel::device().release_shared(piece->memory.address, piece->memory.bytes);
    } catch (...) {
      // The device is lost, and its memory with it.
    }
  }
}

Outgoing Outbox::reserve(std::size_t bytes) {
  if (forks_so_far() != forks_)
    throw Error(fmt::format(
        "rank {} belongs to the parent of this process; a forked child cannot use its fabric", rank_));
  const std::lock_guard calls(calls_);
  Slot& slot = slot_for(bytes);
  try {
    prepare(slot);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    slot.held = false;
    throw;
  }
  std::byte* memory =
      slot.piece == nullptr ? nullptr : static_cast<std::byte*>(slot.piece->memory.address) + slot.offset;
  return {this, &slot, {memory, bytes}, MemoryKind::cuda};
}

// Whether a slot suits a message on the calling thread's device. Large slots are only used for messages of
// about their size, so that little memory is wasted.
bool Outbox::fits(std::size_t bytes, const Slot& slot) {
  if (slot.piece != nullptr && slot.piece->device != kernel::device_context().device) return false;
  if (bytes <= kLargestShared) return slot.capacity == rounded(bytes);
  return slot.capacity >= bytes && slot.made_for <= bytes + bytes / 4;
}

Outbox::Slot& Outbox::slot_for(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (Slot* slot = free_slot(bytes)) return *slot;
  }
  return new_slot(bytes);
}

// The smallest free slot that fits; of several, the one released first, whose work ends first.
Outbox::Slot* Outbox::free_slot(std::size_t bytes) {
  Slot* best = nullptr;
  for (const auto& slot : slots_) {
    if (slot->held || !fits(bytes, *slot)) continue;
    if (best != nullptr &&
        std::pair(best->capacity, best->given_back) < std::pair(slot->capacity, slot->given_back))
      continue;
    if (let_go(*slot)) best = slot.get();
  }
  if (best != nullptr) best->held = true;
  return best;
}

Outbox::Slot& Outbox::new_slot(std::size_t bytes) {
  auto slot = std::make_unique<Slot>();
  slot->held = true;
  slot->capacity = rounded(bytes);
  slot->made_for = bytes;
  if (bytes > 0) {
    const auto has_room = [&](const auto& piece) {
      return bytes <= kLargestShared && piece->device == kernel::device_context().device &&
             piece->carved + slot->capacity <= piece->memory.bytes;
    };
    const auto found = std::find_if(pieces_.begin(), pieces_.end(), has_room);
    slot->piece = found != pieces_.end() ? found->get()
                                         : &new_piece(bytes <= kLargestShared ? kSharedPiece : bytes, bytes);
    if (bytes > kLargestShared) slot->capacity = slot->piece->memory.bytes;
    slot->ready = flags_.take();
  }
  const std::lock_guard lock(mutex_);
  if (slot->piece != nullptr) {
    slot->offset = slot->piece->carved;
    slot->piece->carved += slot->capacity;
  }
  return *slots_.emplace_back(std::move(slot));
}

Outbox::Piece& Outbox::new_piece(std::size_t bytes, std::size_t wanted) {
  kernel::Device& device = kernel::device();
  if (bytes_ + bytes > limit_) free_idle_pieces();
  if (bytes_ + bytes > limit_)
    throw Error(
        fmt::format("no device memory for a message of {} bytes: messages have {} of at most {} bytes ({})",
                    wanted, bytes_, limit_, holders()));
  auto piece = std::make_unique<Piece>();
  try {
    piece->memory = device.create_shared(bytes);
  } catch (const Error&) {
    free_idle_pieces();
    try {
      piece->memory = device.create_shared(bytes);
    } catch (const Error& error) {
      throw Error(
          fmt::format("no device memory for a message of {} bytes beside the {} that messages have ({}): {}",
                      wanted, bytes_, holders(), error.what()));
    }
  }
  piece->line = flags_.take();
  piece->line.name.number = ++last_piece_;
  const std::lock_guard lock(mutex_);
  bytes_ += piece->memory.bytes;
  return *pieces_.emplace_back(std::move(piece));
}

// The calling thread's stream waits until all work on the slot's previous message has ended.
void Outbox::prepare(Slot& slot) {
  if (slot.piece == nullptr) return;
  await(slot.ready);
  for (const Claim& claim : slot.claims) await(claim.line);
  if (slot.ready.name.number >= kLastReady) slot.ready = flags_.take();
  const std::lock_guard lock(mutex_);
  std::move(slot.claims.begin(), slot.claims.end(), std::back_inserter(ending_));
  slot.claims.clear();
  slot.published = false;
  slot.contexts = {kernel::device_context()};
}

void Outbox::await(const OwnLine& line) const {
  if (!line.reached()) kernel::device().wait(line.line->flag, line.name.number);
}

bool Outbox::let_go(const Slot& slot) const {
  return std::all_of(slot.claims.begin(), slot.claims.end(), [&](const Claim& claim) {
    return claim.line.line->released.load(std::memory_order_acquire) != 0 ||
           dead_[static_cast<std::size_t>(claim.to)];
  });
}

Ticket Outbox::publish(const OutgoingRange& range, Rank to) {
  Slot& slot = *static_cast<Slot*>(range.handle());
  Ticket ticket;
  ticket.bytes = range.size();
  if (range.size() == 0) return ticket;
  const std::lock_guard calls(calls_);
  if (!slot.published) {
    follow_others(slot);
    kernel::device().write(slot.ready.line->flag, slot.ready.name.number + 1);
    ++slot.ready.name.number;
    slot.published = true;
    if (slot.contexts.back() != kernel::device_context()) slot.contexts.push_back(kernel::device_context());
  }
  reuse_lines();
  Claim claim{flags_.take(), to, range.size()};
  ++claim.line.name.number;
  ticket.offset = slot.offset + range.offset();
  ticket.piece_bytes = slot.piece->memory.bytes;
  ticket.piece = slot.piece->line.name;
  ticket.ready = slot.ready.name;
  ticket.claim = claim.line.name;
  const std::lock_guard lock(mutex_);
  if (!dead_[static_cast<std::size_t>(to)]) slot.claims.push_back(claim);
  return ticket;
}

// The calling thread's stream waits for the other streams on which this rank has used the slot.
void Outbox::follow_others(const Slot& slot) {
  for (const kernel::DeviceContext& context : slot.contexts)
    if (context != kernel::device_context()) kernel::device().order_after(context);
}

// Reuses the lines of claims whose readers' devices have finished.
void Outbox::reuse_lines() {
  const std::lock_guard lock(mutex_);
  std::erase_if(ending_, [&](const Claim& claim) {
    if (!claim.line.reached()) return false;
    flags_.give_back(claim.line);
    return true;
  });
}

void Outbox::give_back(void* handle) noexcept {
  if (forks_so_far() != forks_) return;  // in a forked child, the memory belongs to the parent
  Slot& slot = *static_cast<Slot*>(handle);
  if (slot.piece != nullptr) {
    try {
      follow_others(slot);
      kernel::device().write(slot.ready.line->flag, slot.ready.name.number + 1);
    } catch (...) {
      return;  // the device has failed: the slot is never reused
    }
  }
  const std::lock_guard lock(mutex_);
  if (slot.piece != nullptr) ++slot.ready.name.number;
  slot.held = false;
  slot.given_back = ++gifts_;
}

Descriptor Outbox::give(Rank reader, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const auto& piece) { return piece->line.name.number == number; });
  if (found == pieces_.end()) return {};
  (*found)->readers.insert(reader);
  return Descriptor(fcntl((*found)->memory.descriptor.get(), F_DUPFD_CLOEXEC, 0));
}

void Outbox::peer_died(Rank peer) {
  const std::lock_guard lock(mutex_);
  dead_[static_cast<std::size_t>(peer)] = true;
  const auto lose = [&](const Claim& claim) {
    if (claim.to == peer) claim.line.line->flag.fetch_or(kernel::kLost, std::memory_order_acq_rel);
  };
  for (const auto& slot : slots_) std::for_each(slot->claims.begin(), slot->claims.end(), lose);
  std::for_each(ending_.begin(), ending_.end(), lose);
}

bool Outbox::all_written() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->piece == nullptr || slot->ready.reached(); });
}

bool Outbox::readers_need_pieces() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
    return std::any_of(slot->claims.begin(), slot->claims.end(), [&](const Claim& claim) {
      return claim.line.line->released.load(std::memory_order_acquire) == 0 &&
             !dead_[static_cast<std::size_t>(claim.to)] && !slot->piece->readers.contains(claim.to);
    });
  });
}

DeviceMessages::Usage Outbox::usage() const {
  const std::lock_guard lock(mutex_);
  return {pieces_.size(), bytes_, slots_.size()};
}

// Whether no enqueued work uses the slot.
bool Outbox::idle(const Slot& slot) const {
  return !slot.held && let_go(slot) && slot.ready.reached() &&
         std::all_of(slot.claims.begin(), slot.claims.end(),
                     [](const Claim& claim) { return claim.line.reached(); });
}

// Frees the pieces without messages, after their remaining work has ended.
void Outbox::free_idle_pieces() {
  const auto end = std::chrono::steady_clock::now() + kWorkLimit;
  for (bool some_are_busy = true; some_are_busy;) {
    for (const auto& piece : take_idle_pieces(some_are_busy)) {
      piece->line.line->released.store(1, std::memory_order_release);
      kernel::device().release_shared(piece->memory.address, piece->memory.bytes);
    }
    if (std::chrono::steady_clock::now() > end) return;
    if (some_are_busy) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

Outbox::Pieces Outbox::take_idle_pieces(bool& some_are_busy) {
  const std::lock_guard lock(mutex_);
  some_are_busy = false;
  Pieces taken;
  for (auto& piece : pieces_) {
    const auto in_piece = [&](const auto& slot) { return slot->piece == piece.get(); };
    const auto all = [&](const auto& what) {
      return std::all_of(slots_.begin(), slots_.end(),
                         [&](const auto& slot) { return !in_piece(slot) || what(*slot); });
    };
    if (!all([&](const Slot& slot) { return !slot.held && let_go(slot); })) continue;
    if (!all([&](const Slot& slot) { return idle(slot); })) {
      some_are_busy = true;
      continue;
    }
    std::erase_if(slots_, [&](const auto& slot) {
      if (!in_piece(slot)) return false;
      for (const Claim& claim : slot->claims) flags_.give_back(claim.line);
      flags_.give_back(slot->ready);
      return true;
    });
    bytes_ -= piece->memory.bytes;
    taken.push_back(std::move(piece));
  }
  std::erase(pieces_, nullptr);
  return taken;
}

std::string Outbox::holders() const {
  const std::lock_guard lock(mutex_);
  std::map<Rank, std::size_t> held;
  std::size_t own = 0;
  for (const auto& slot : slots_) {
    if (slot->held) own += slot->capacity;
    for (const Claim& claim : slot->claims)
      if (claim.line.line->released.load(std::memory_order_acquire) == 0) held[claim.to] += claim.bytes;
  }
  std::string text = fmt::format("this rank's operations hold {}", own);
  for (const auto& [rank, bytes] : held) text += fmt::format(", rank {} holds {}", rank, bytes);
  return text;
}

}  // namespace starling::fabric::cuda

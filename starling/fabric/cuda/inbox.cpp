#include "starling/fabric/cuda/inbox.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "starling/base/error.h"
#include "starling/fabric/local/region.h"

namespace starling::fabric::cuda {
namespace {

bool is_ticket(const Arrival& arrival) {
  return arrival.header().flag == kTicketFlag;
}

}  // namespace

Inbox::Inbox(Fabric& fabric, FlagPages& flags, std::function<void(Rank owner, std::uint32_t piece)> ask)
    : fabric_(fabric),
      flags_(flags),
      ask_(std::move(ask)),
      senders_(static_cast<std::size_t>(fabric.size())) {}

Inbox::~Inbox() {
  if (!all_read()) return;  // the device has failed
  try {
    for (Sender& from : senders_)
      for (auto& [number, piece] : from.pieces)
        if (piece.address != nullptr) kernel::device().release_shared(piece.address, piece.bytes);
  } catch (...) {
    // The device is lost, and its mappings with it.
  }
}

std::optional<Arrival> Inbox::poll(Rank source) {
  const std::lock_guard lock(mutex_);
  Sender& from = sender(source);
  for (;;) {
    if (from.held.empty()) {
      auto arrival = fabric_.poll(source);
      if (!arrival || !is_ticket(*arrival)) return arrival;
      from.held.push_back(std::move(*arrival));
    }
    Arrival& first = from.held.front();
    if (!is_ticket(first)) {
      Arrival arrival = std::move(first);
      from.held.pop_front();
      return arrival;
    }
    const Ticket ticket = ticket_in(first);
    Piece* piece = nullptr;
    bool is_new = false;
    if (ticket.bytes > 0) {
      const auto [entry, added] = from.pieces.try_emplace(ticket.piece.number);
      piece = &entry->second;
      is_new = added;
    }
    if (piece == nullptr || piece->known()) {
      Arrival arrival = lend(source, first, ticket);
      from.held.pop_front();
      return arrival;
    }
    if (from.dead) {  // the memory will never be available: the message counts as not sent
      from.held.pop_front();
      continue;
    }
    if (!from.trouble.empty()) throw Error(from.trouble);
    if (is_new) ask_(source, ticket.piece.number);
    take_rest(source);  // a message left in the fabric would keep sleeping threads awake
    return std::nullopt;
  }
}

Ticket Inbox::ticket_in(const Arrival& arrival) const {
  Ticket ticket;
  if (arrival.size() != sizeof(ticket))
    local::refuse_memory_of(arrival.source(), fmt::format("a ticket has {} bytes", arrival.size()));
  std::memcpy(&ticket, arrival.bytes().data(), sizeof(ticket));
  if (ticket.bytes > 0 &&
      (ticket.offset > ticket.piece_bytes || ticket.bytes > ticket.piece_bytes - ticket.offset))
    local::refuse_memory_of(arrival.source(),
                            fmt::format("a message of {} bytes at {} is outside its device memory of {}",
                                        ticket.bytes, ticket.offset, ticket.piece_bytes));
  return ticket;
}

Arrival Inbox::lend(Rank source, const Arrival& arrival, const Ticket& ticket) {
  auto lent = std::make_unique<Lent>();
  lent->source = source;
  lent->ticket = ticket;
  MessageHeader header = arrival.header();
  header.flag = 0;
  header.bytes = ticket.bytes;
  if (ticket.bytes > 0) {
    Sender& from = sender(source);
    lent->ready = &flags_.find(source, ticket.ready);
    lent->claim = &flags_.find(source, ticket.claim);
    Piece& piece = from.pieces[ticket.piece.number];
    piece.line = &flags_.find(source, ticket.piece);
    piece.bytes = ticket.piece_bytes;
    ++piece.lent;
    from.ready.insert(lent->ready);
    if (from.dead) lent->ready->flag.fetch_or(kernel::kLost, std::memory_order_acq_rel);
  }
  return {this, source, lent.release(), header, MemoryKind::cuda};
}

// Drops a message that no device of this rank has used.
void Inbox::drop(Rank source, const Ticket& ticket) {
  if (ticket.bytes == 0) return;
  FlagLine& claim = flags_.find(source, ticket.claim);
  claim.flag.store(ticket.claim.number, std::memory_order_release);
  claim.released.store(1, std::memory_order_release);
}

DevicePayload Inbox::device_payload(void* handle) {
  Lent& lent = *static_cast<Lent*>(handle);
  const Ticket& ticket = lent.ticket;
  if (ticket.bytes == 0) return {};
  flags_.make_usable(lent.source, ticket.ready);
  flags_.make_usable(lent.source, ticket.claim);
  const std::byte* memory = mapped(lent.source, ticket);
  if (!std::exchange(lent.used, true)) lent.context = kernel::device_context();
  return {memory + ticket.offset, &lent.ready->flag, ticket.ready.number};
}

bool Inbox::complete(void* handle) const {
  const Lent& lent = *static_cast<const Lent*>(handle);
  return lent.ticket.bytes == 0 ||
         kernel::arrived(lent.ready->flag.load(std::memory_order_acquire), lent.ticket.ready.number);
}

std::byte* Inbox::mapped(Rank source, const Ticket& ticket) {
  const std::lock_guard mapping(mapping_);
  if (unused_.load(std::memory_order_acquire)) unmap_unused();
  Descriptor descriptor;
  {
    const std::lock_guard lock(mutex_);
    const Piece& piece = sender(source).pieces[ticket.piece.number];
    if (piece.address != nullptr) return piece.address;
    descriptor = Descriptor(fcntl(piece.descriptor.get(), F_DUPFD_CLOEXEC, 0));
  }
  unmap_unused();  // the owner may have freed other pieces
  void* address = kernel::device().map_shared(std::move(descriptor), ticket.piece_bytes);
  const std::lock_guard lock(mutex_);
  Piece& piece = sender(source).pieces[ticket.piece.number];
  piece.descriptor = Descriptor();
  return piece.address = static_cast<std::byte*>(address);
}

// Unmaps pieces of dead peers and pieces that their owners have freed, once no work of this rank uses them
// and all messages in them were read. (A peer's last messages may not have been polled yet.)
void Inbox::unmap_unused() {
  std::vector<std::pair<std::byte*, std::size_t>> unused;
  {
    const std::lock_guard lock(mutex_);
    unused_.store(false, std::memory_order_relaxed);
    for (Rank source = 0; source < fabric_.size(); ++source) {
      Sender& from = sender(source);
      forget_written(from);
      if (from.dead) take_rest(source);
      std::erase_if(from.pieces, [&](auto& entry) {
        auto& [number, piece] = entry;
        const bool freed = piece.line != nullptr && piece.line->released.load(std::memory_order_acquire) != 0;
        if (!piece.known() || !(from.dead || freed)) return false;
        const bool in_use =
            piece.lent > 0 ||
            std::any_of(from.writing.begin(), from.writing.end(),
                        [wanted = number](const Writing& writing) { return writing.piece == wanted; }) ||
            std::any_of(from.held.begin(), from.held.end(), [&, wanted = number](const Arrival& held) {
              return is_ticket(held) && ticket_in(held).piece.number == wanted;
            });
        if (in_use) {
          unused_.store(true, std::memory_order_relaxed);
          return false;
        }
        if (piece.address != nullptr) unused.emplace_back(piece.address, piece.bytes);
        return true;
      });
    }
  }
  for (const auto& [address, bytes] : unused) kernel::device().release_shared(address, bytes);
}

void Inbox::take_rest(Rank source) {
  bool any = false;
  while (auto arrival = fabric_.poll(source)) {
    sender(source).held.push_back(std::move(*arrival));
    any = true;
  }
  if (any) fabric_.nudge();  // sleeping threads check for messages in the fabric
}

void Inbox::forget_written(Sender& from) {
  std::erase_if(from.writing, [](const Writing& writing) {
    return writing.line->flag.load(std::memory_order_acquire) >= writing.number;
  });
}

void Inbox::done_with(void* handle) noexcept {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(handle));
  // in a forked child, the parent still reads it
  if (forks_so_far() != forks_ || lent->ticket.bytes == 0) return;
  const std::uint32_t number = lent->ticket.claim.number;
  bool writes = lent->used;
  if (writes) {
    try {
      kernel::Device& device = kernel::device();
      if (lent->context != kernel::device_context()) device.order_after(lent->context);
      device.write(lent->claim->flag, number);
    } catch (...) {
      writes = false;  // the device has failed and reads nothing any more
    }
  }
  if (!writes) lent->claim->flag.store(number, std::memory_order_release);
  lent->claim->released.store(1, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  Sender& from = sender(lent->source);
  --from.pieces[lent->ticket.piece.number].lent;
  if (!writes) return;
  constexpr std::size_t kMany = 32;
  if (from.writing.size() >= kMany) forget_written(from);
  from.writing.push_back({lent->ticket.piece.number, lent->claim, number});
}

bool Inbox::waiting(Rank source) const {
  const std::lock_guard lock(mutex_);
  const Sender& from = senders_[static_cast<std::size_t>(source)];
  return !from.held.empty() && !from.dead && from.trouble.empty();
}

void Inbox::discard() {
  const std::lock_guard lock(mutex_);
  for (Rank source = 0; source < fabric_.size(); ++source) {
    if (source == fabric_.rank()) continue;
    std::deque<Arrival> all = std::exchange(sender(source).held, {});
    while (auto arrival = fabric_.poll(source)) all.push_back(std::move(*arrival));
    for (const Arrival& arrival : all)
      if (is_ticket(arrival)) drop(source, ticket_in(arrival));
  }
}

bool Inbox::all_read() {
  const std::lock_guard lock(mutex_);
  return std::all_of(senders_.begin(), senders_.end(), [](Sender& from) {
    forget_written(from);
    return from.writing.empty();
  });
}

void Inbox::received(Rank owner, std::uint32_t number, Descriptor descriptor) {
  const std::lock_guard lock(mutex_);
  Piece& piece = sender(owner).pieces[number];
  if (!piece.known()) piece.descriptor = std::move(descriptor);
}

void Inbox::failed(Rank owner, const std::string& why) {
  const std::lock_guard lock(mutex_);
  sender(owner).trouble = why;
}

void Inbox::peer_died(Rank peer) {
  const std::lock_guard lock(mutex_);
  Sender& from = sender(peer);
  from.dead = true;
  for (FlagLine* line : from.ready) line->flag.fetch_or(kernel::kLost, std::memory_order_acq_rel);
  unused_.store(true, std::memory_order_release);
}

}  // namespace starling::fabric::cuda

#include "starling/fabric/local/inbox.h"

#include <fmt/format.h>

namespace starling::local {

Inbox::Inbox(Rank rank, const Regions& regions, std::function<bool()> ours)
    : regions_(regions), ours_(std::move(ours)), places_(std::make_unique<Place[]>(regions.size())) {
  for (std::size_t r = 0; r < regions.size(); ++r) {
    places_[r].chunk = regions[r]->as<Chunk>(chunk_offset(rank));
    places_[r].head.store(&places_[r].chunk->entries[0].payload);
  }
}

std::optional<Arrival> Inbox::poll(Rank source) {
  if (!waiting(source)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Place& at = place(source);
  const Region& theirs = *regions_[static_cast<std::size_t>(source)];
  for (;;) {
    const std::uint64_t offset = at.chunk->entries[at.next].payload.load(std::memory_order_acquire);
    if (offset == 0) return std::nullopt;
    Chunk* chunk = at.chunk;
    const std::size_t index = at.next;
    // A copy: the sender could change its own after it was checked.
    const MessageHeader header = chunk->entries[index].header;
    if (index < kEntries && !Region::contains(offset, header.bytes))
      refuse_memory_of(source, fmt::format("a message of {} bytes at {} is outside", header.bytes, offset));
    if (index == kEntries) {
      if (offset % alignof(Chunk) != 0 || !Region::contains(offset, sizeof(Chunk)))
        refuse_memory_of(source, fmt::format("its list of messages goes on at {}, which is outside", offset));
      at.chunk = theirs.as<Chunk>(offset);
      at.next = 0;
      chunk->passed.store(1, std::memory_order_release);
    } else {
      ++at.next;
    }
    at.head.store(&at.chunk->entries[at.next].payload, std::memory_order_release);
    if (index == kEntries) continue;
    return Arrival(this, source, &chunk->released[index], header, {theirs.at(offset), header.bytes});
  }
}

void Inbox::done_with(void* handle) noexcept {
  if (!ours_()) return;  // the parent still reads it
  static_cast<std::atomic<std::uint8_t>*>(handle)->store(1, std::memory_order_release);
}

}  // namespace starling::local

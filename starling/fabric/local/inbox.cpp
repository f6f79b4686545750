#include "starling/fabric/local/inbox.h"

#include <fmt/format.h>

namespace starling::fabric::local {

Inbox::Inbox(Rank rank, const Regions& regions, std::function<bool()> ours)
    : regions_(regions),
      ours_(std::move(ours)),
      positions_(std::make_unique<ReadPosition[]>(regions.size())) {
  for (std::size_t r = 0; r < regions.size(); ++r) {
    positions_[r].chunk = regions[r]->as<Chunk>(chunk_offset(rank));
    positions_[r].head.store(&positions_[r].chunk->slots[0].payload);
  }
}

std::optional<Arrival> Inbox::poll(Rank source) {
  if (!waiting(source)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  ReadPosition& at = position(source);
  const Region& theirs = *regions_[static_cast<std::size_t>(source)];
  for (;;) {
    const std::uint64_t offset = at.chunk->slots[at.next].payload.load(std::memory_order_acquire);
    if (offset == 0) return std::nullopt;
    Chunk* chunk = at.chunk;
    const std::size_t index = at.next;
    // Copied before it is checked: a faulty sender could change it afterwards.
    const MessageHeader header = chunk->slots[index].header;
    if (index < kSlots && !Region::contains(offset, header.bytes))
      refuse_memory_of(source, fmt::format("a message of {} bytes at offset {} is outside the region",
                                           header.bytes, offset));
    if (index == kSlots) {
      if (offset % alignof(Chunk) != 0 || !Region::contains(offset, sizeof(Chunk)))
        refuse_memory_of(
            source,
            fmt::format("its message list continues at offset {}, which is outside the region", offset));
      at.chunk = theirs.as<Chunk>(offset);
      at.next = 0;
      chunk->passed.store(1, std::memory_order_release);
    } else {
      ++at.next;
    }
    at.head.store(&at.chunk->slots[at.next].payload, std::memory_order_release);
    if (index == kSlots) continue;
    return Arrival(this, source, &chunk->released[index], header, {theirs.at(offset), header.bytes});
  }
}

void Inbox::done_with(void* handle) noexcept {
  if (!ours_()) return;  // a forked child: the parent still reads the message
  static_cast<std::atomic<std::uint8_t>*>(handle)->store(1, std::memory_order_release);
}

}  // namespace starling::fabric::local

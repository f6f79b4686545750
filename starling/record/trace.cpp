#include "starling/record/trace.h"

#include <limits>

namespace starling::record {

std::uint16_t Trace::number_of(const RecordName& name) const {
  const std::atomic_ref<std::uint32_t> number(name.number);
  std::uint32_t known = number.load(std::memory_order_relaxed);
  if (known == 0) {
    known = recorder_.timeline->name(name.text) + 1u;
    number.store(known, std::memory_order_relaxed);
  }
  return static_cast<std::uint16_t>(known - 1);
}

void Trace::peer(Rank rank, bool later_phase) {
  const auto short_rank = static_cast<std::uint16_t>(std::min(rank, 65'535));
  const auto kept = std::min<std::size_t>(record_.peer_count, kTimelinePeers);
  const auto end = record_.peers.begin() + static_cast<std::ptrdiff_t>(kept);
  if (std::find(record_.peers.begin(), end, short_rank) != end) return;
  if (kept == kTimelinePeers && later_phase) return;  // it may have been counted already
  if (kept < kTimelinePeers) record_.peers[kept] = short_rank;
  recorder_.flight.peer(flight_number_, record_.peer_count, rank);
  if (record_.peer_count < std::numeric_limits<std::uint16_t>::max()) ++record_.peer_count;
}

}  // namespace starling::record

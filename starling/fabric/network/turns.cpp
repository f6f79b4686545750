#include "starling/fabric/network/turns.h"

#include <algorithm>

namespace starling::network {
namespace {

constexpr std::size_t kMayBeAhead = std::size_t{1} << 20;  // bytes: covers the way of a receipt
constexpr std::chrono::seconds kPatience{1};

}  // namespace

bool Turns::in_turn(const Frame& frame) {
  if (frame.kind != FrameKind::message) return false;
  const auto kind = static_cast<MessageKind>(frame.message.kind);
  return kind == MessageKind::average || kind == MessageKind::long_average;
}

Turns::Releases Turns::add(Rank peer, const MessageHeader& message, bool in_turn) {
  const std::lock_guard lock(mutex_);
  if (std::none_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.peer == peer; }))
    moved(peer) = Clock::now();
  // Schedules that never change have no step in their messages, but a number for every one.
  const std::uint64_t order = std::max(static_cast<std::uint64_t>(message.step), message.sequence);
  entries_.push_back({peer, message.bytes, order, in_turn, false});
  ++held_;
  return release();
}

Turns::Releases Turns::done(Rank peer) {
  const std::lock_guard lock(mutex_);
  moved(peer) = Clock::now();
  const auto first =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.peer == peer; });
  if (first != entries_.end()) {
    if (!first->goes) --held_;
    entries_.erase(first);
  }
  return release();
}

Turns::Releases Turns::lost(Rank peer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.peer == peer; });
  held_ = static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.goes; }));
  return release();
}

Turns::Releases Turns::look() {
  const std::lock_guard lock(mutex_);
  return release();
}

bool Turns::may_go(const Entry& entry, std::size_t index, Clock::time_point now) const {
  std::size_t same_peer = 0;
  std::size_t before = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& other = entries_[i];
    if (other.peer == entry.peer) {
      if (i < index && !other.goes) return false;
      if (i < index) same_peer += other.bytes;
    } else if (entry.in_turn && other.in_turn && other.order < entry.order &&
               now - moved_[static_cast<std::size_t>(other.peer)] < kPatience) {
      before += other.bytes;
    }
  }
  return before <= kMayBeAhead && (same_peer == 0 || same_peer + entry.bytes <= window_);
}

Turns::Releases Turns::release() {
  Releases released;
  if (held_ == 0) return released;
  const auto now = Clock::now();
  std::vector<bool> waits(moved_.size(), false);  // what follows for the same peer does, too
  for (std::size_t i = 0; i < entries_.size() && held_ > 0; ++i) {
    Entry& entry = entries_[i];
    if (entry.goes || waits[static_cast<std::size_t>(entry.peer)]) continue;
    if (!may_go(entry, i, now)) {
      waits[static_cast<std::size_t>(entry.peer)] = true;
      continue;
    }
    entry.goes = true;
    --held_;
    const auto known = std::find_if(released.begin(), released.end(),
                                    [&](const Release& one) { return one.peer == entry.peer; });
    if (known != released.end())
      ++known->payloads;
    else
      released.push_back({entry.peer, 1});
  }
  return released;
}

}  // namespace starling::network

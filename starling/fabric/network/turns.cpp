#include "starling/fabric/network/turns.h"

#include <algorithm>

namespace starling::network {
namespace {

constexpr std::chrono::seconds kShortestWait{1};
constexpr std::chrono::seconds kLongestWait{60};

// Of an operation that everybody takes part in, step by step. One-sided traffic goes as it comes.
bool has_turn(const Frame& frame) {
  if (frame.kind != FrameKind::message) return false;
  const auto kind = static_cast<MessageKind>(frame.message.kind);
  return kind == MessageKind::average || kind == MessageKind::long_average;
}

// Schedules that never change have no step in their messages, but a number for every one.
std::uint64_t order_of(const MessageHeader& message) {
  return std::max(static_cast<std::uint64_t>(message.step), message.sequence);
}

}  // namespace

Turns::Releases Turns::add(Rank peer, const Frame& frame) {
  const std::lock_guard lock(mutex_);
  if (lost_[static_cast<std::size_t>(peer)]) return {};  // it was posted while the peer was being lost
  if (std::none_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.peer == peer; }))
    moved(peer) = Clock::now();
  entries_.push_back({peer, order_of(frame.message), has_turn(frame), false});
  note_pace(entries_.back(), Clock::now());
  ++held_;
  return release();
}

// Half a step late is nothing, and on a slow link that is seconds. Who catches up takes some steps at once,
// which are not the pace.
void Turns::note_pace(const Entry& entry, Clock::time_point now) {
  if (!entry.in_turn || entry.order <= newest_) return;
  if (newest_ > 0) pace_ = std::max(now - newest_came_, pace_ * 3 / 4);
  newest_ = entry.order;
  newest_came_ = now;
}

Turns::Clock::duration Turns::patience() const {
  return std::clamp<Clock::duration>(2 * pace_, kShortestWait, kLongestWait);
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
  lost_[static_cast<std::size_t>(peer)] = true;
  std::erase_if(entries_, [&](const Entry& entry) { return entry.peer == peer; });
  held_ = static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.goes; }));
  return release();
}

Turns::Releases Turns::look() {
  const std::lock_guard lock(mutex_);
  return release();
}

bool Turns::may_go(const Entry& entry, Clock::time_point now) const {
  return !entry.in_turn || std::none_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return other.peer != entry.peer && other.in_turn && other.order < entry.order &&
           now - moved_[static_cast<std::size_t>(other.peer)] < patience();
  });
}

Turns::Releases Turns::release() {
  Releases released;
  if (held_ == 0) return released;
  const auto now = Clock::now();
  std::vector<bool> waits(moved_.size(), false);  // what follows for the same peer does, too
  for (Entry& entry : entries_) {
    if (entry.goes || waits[static_cast<std::size_t>(entry.peer)]) continue;
    if (!may_go(entry, now)) {
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

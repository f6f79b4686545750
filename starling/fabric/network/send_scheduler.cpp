#include "starling/fabric/network/send_scheduler.h"

#include <algorithm>

namespace starling::fabric::network {
namespace {

constexpr std::chrono::seconds kShortestWait{1};
constexpr std::chrono::seconds kLongestWait{60};

// Messages of operations in which all ranks take part step by step. Others, such as one-sided traffic, are
// not ordered.
bool is_ordered(const Frame& frame) {
  if (frame.kind != FrameKind::message) return false;
  const auto kind = static_cast<MessageKind>(frame.message.kind);
  return kind == MessageKind::average || kind == MessageKind::long_average;
}

// Messages of constant schedules have no step, but a sequence number.
std::uint64_t order_of(const MessageHeader& message) {
  return std::max(static_cast<std::uint64_t>(message.step), message.sequence);
}

}  // namespace

SendScheduler::Releases SendScheduler::add(Rank peer, const Frame& frame) {
  const std::lock_guard lock(mutex_);
  if (lost_[static_cast<std::size_t>(peer)]) return {};  // posted while the peer was being lost
  if (std::none_of(transfers_.begin(), transfers_.end(),
                   [&](const Transfer& transfer) { return transfer.peer == peer; }))
    progressed(peer) = now_();
  transfers_.push_back({peer, order_of(frame.message), is_ordered(frame), false});
  update_pace(transfers_.back(), now_());
  ++held_;
  return release();
}

// The pace scales the patience: on a slow link, half a step of delay takes seconds and is normal. The maximum
// decays slowly, because a rank that catches up takes several steps at once, which is not the pace.
void SendScheduler::update_pace(const Transfer& transfer, Clock::time_point now) {
  if (!transfer.ordered || transfer.order <= newest_) return;
  if (newest_ > 0) pace_ = std::max(now - newest_came_, pace_ * 3 / 4);
  newest_ = transfer.order;
  newest_came_ = now;
}

SendScheduler::Clock::duration SendScheduler::patience() const {
  return std::clamp<Clock::duration>(2 * pace_, kShortestWait, kLongestWait);
}

SendScheduler::Releases SendScheduler::done(Rank peer) {
  const std::lock_guard lock(mutex_);
  progressed(peer) = now_();
  const auto first = std::find_if(transfers_.begin(), transfers_.end(),
                                  [&](const Transfer& transfer) { return transfer.peer == peer; });
  if (first != transfers_.end()) {
    if (!first->released) --held_;
    transfers_.erase(first);
  }
  return release();
}

SendScheduler::Releases SendScheduler::lost(Rank peer) {
  const std::lock_guard lock(mutex_);
  lost_[static_cast<std::size_t>(peer)] = true;
  std::erase_if(transfers_, [&](const Transfer& transfer) { return transfer.peer == peer; });
  held_ = static_cast<std::size_t>(std::count_if(
      transfers_.begin(), transfers_.end(), [](const Transfer& transfer) { return !transfer.released; }));
  return release();
}

SendScheduler::Releases SendScheduler::recheck() {
  const std::lock_guard lock(mutex_);
  return release();
}

bool SendScheduler::may_proceed(const Transfer& transfer, Clock::time_point now) const {
  return !transfer.ordered || std::none_of(transfers_.begin(), transfers_.end(), [&](const Transfer& other) {
    return other.peer != transfer.peer && other.ordered && other.order < transfer.order &&
           now - progressed_[static_cast<std::size_t>(other.peer)] < patience();
  });
}

SendScheduler::Releases SendScheduler::release() {
  Releases released;
  if (held_ == 0) return released;
  const auto now = now_();
  std::vector<bool> waits(progressed_.size(), false);  // by peer: later payloads of it wait, too
  for (Transfer& transfer : transfers_) {
    if (transfer.released || waits[static_cast<std::size_t>(transfer.peer)]) continue;
    if (!may_proceed(transfer, now)) {
      waits[static_cast<std::size_t>(transfer.peer)] = true;
      continue;
    }
    transfer.released = true;
    --held_;
    const auto known = std::find_if(released.begin(), released.end(),
                                    [&](const Release& one) { return one.peer == transfer.peer; });
    if (known != released.end())
      ++known->payloads;
    else
      released.push_back({transfer.peer, 1});
  }
  return released;
}

}  // namespace starling::fabric::network

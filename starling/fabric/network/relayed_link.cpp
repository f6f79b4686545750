#include "starling/fabric/network/relayed_link.h"

#include <cstring>
#include <iterator>

#include "starling/base/error.h"

namespace starling::fabric::network {
namespace {

constexpr std::uint64_t kUnordered = UINT64_MAX;
constexpr std::chrono::seconds kResendEvery{1};

}  // namespace

void RelayedLink::start(Transport::Backlog backlog) {
  const std::lock_guard lock(mutex_);
  if (dropped_) return;
  first_ = backlog.first;
  std::deque<Item> early;
  early.swap(kept_);
  for (auto& [frame, payload] : backlog.frames) kept_.push_back({frame, std::move(payload)});
  kept_.insert(kept_.end(), std::make_move_iterator(early.begin()), std::make_move_iterator(early.end()));
  started_ = true;
}

// Wraps the frame into an outer frame that names source and destination, for the relays in between.
void RelayedLink::send_item(std::uint64_t number, const Item& item) {
  if (relay_ < 0 || !started_) return;
  Frame outer;
  outer.kind = FrameKind::relay;
  outer.number = number;
  outer.message.count = static_cast<std::uint64_t>(rank_);
  outer.message.detail = static_cast<std::uint64_t>(peer_);
  outer.message.sequence = received_;
  outer.message.step = static_cast<Step>(first_ + kept_.size());
  outer.message.flag = missing_ ? 1 : 0;
  const std::size_t bytes = sizeof(Frame) + item.payload.bytes;
  Slice whole{pool_.take(bytes), 0, bytes};
  if (!whole.memory) throw Error("no memory left to relay a message through another rank");
  std::memcpy(whole.data(), &item.frame, sizeof(Frame));
  if (item.payload.bytes > 0)
    std::memcpy(whole.data() + sizeof(Frame), item.payload.data(), item.payload.bytes);
  outer.message.bytes = bytes;
  send_(relay_, outer, whole);
}

bool RelayedLink::send(const Frame& frame, const Slice& payload) {
  const std::lock_guard lock(mutex_);
  if (dropped_) return false;
  kept_.push_back({frame, payload});
  send_item(first_ + kept_.size() - 1, kept_.back());
  return true;
}

void RelayedLink::send_unordered(const Frame& frame, const Slice& payload) {
  const std::lock_guard lock(mutex_);
  if (started_) send_item(kUnordered, {frame, payload});
}

void RelayedLink::use(Rank relay) {
  const std::lock_guard lock(mutex_);
  if (relay_ == relay) return;
  relay_ = relay;
  send_all();
}

void RelayedLink::send_all() {
  resent_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < kept_.size(); ++i) send_item(first_ + i, kept_[i]);
}

Rank RelayedLink::relay() const {
  const std::lock_guard lock(mutex_);
  return relay_;
}

void RelayedLink::received_before(std::uint64_t frames) {
  const std::lock_guard lock(mutex_);
  received_ = frames;
}

void RelayedLink::arrived(
    const Frame& outer, const Slice& payload,
    const std::function<void(const Frame& inner, Slice payload, bool unordered)>& deliver) {
  if (payload.bytes < sizeof(Frame)) return;
  Frame inner;
  std::memcpy(&inner, payload.data(), sizeof(inner));
  {
    const std::lock_guard lock(mutex_);
    for (; first_ < outer.message.sequence && !kept_.empty(); ++first_) kept_.pop_front();
    if (outer.message.flag != 0 && std::chrono::steady_clock::now() - resent_ > kResendEvery) send_all();
    // One path keeps the order: every frame sent earlier has arrived, or is lost.
    const bool unordered = outer.number == kUnordered;
    missing_ = unordered ? outer.message.step > static_cast<Step>(received_) : outer.number > received_;
    if (!unordered && outer.number != received_) return;  // a duplicate, or an earlier frame is missing
    if (!unordered) ++received_;
  }
  deliver(inner, {payload.memory, payload.offset + sizeof(Frame), payload.bytes - sizeof(Frame)},
          outer.number == kUnordered);
}

bool RelayedLink::acknowledged() const {
  const std::lock_guard lock(mutex_);
  return kept_.empty();
}

std::size_t RelayedLink::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t all = 0;
  for (const Item& item : kept_) all += item.payload.bytes;
  return all;
}

void RelayedLink::drop() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
  relay_ = -1;
  dropped_ = true;
}

}  // namespace starling::fabric::network

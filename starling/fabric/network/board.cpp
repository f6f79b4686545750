#include "starling/fabric/network/board.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace starling::fabric::network {
namespace {

constexpr std::chrono::seconds kAnswerTimeout{1};  // a stopped process does not answer

// The 32 bits of a flock's identity that a query has room for. Flocks that share a line report the higher
// step, which is never too low.
std::uint32_t line_of(std::uint64_t flock) {
  return static_cast<std::uint32_t>(flock ^ (flock >> 32));
}

}  // namespace

NetworkBoard::NetworkBoard(Rank rank, Rank size, std::unique_ptr<Consensus> consensus,
                           PendingRequests& requests, Send send, std::function<bool(Rank)> alive)
    : rank_(rank),
      consensus_(std::move(consensus)),
      requests_(requests),
      send_(std::move(send)),
      alive_(std::move(alive)),
      known_agreements_(static_cast<std::size_t>(size)),
      statuses_(static_cast<std::size_t>(size)) {}

void NetworkBoard::add(const Agreement& agreement) {
  if (by_key_.emplace(agreement.key, agreement.value).second) agreements_.push_back(agreement);
}

// Sends the agreement to all ranks without waiting: queries that depend on it carry it again.
std::int64_t NetworkBoard::agree(std::uint64_t key, std::int64_t proposal) {
  if (const auto known = agreed(key)) return *known;
  const std::int64_t value = consensus_->agree(key, proposal);
  {
    const std::lock_guard lock(mutex_);
    add({key, value});
  }
  for (Rank r = 0; r < static_cast<Rank>(known_agreements_.size()); ++r)
    if (r != rank_ && alive_(r)) query(r, 0, 0);
  return value;
}

std::optional<std::int64_t> NetworkBoard::agreed(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

void NetworkBoard::announce(std::uint64_t flock, Step step) {
  const std::lock_guard lock(mutex_);
  Step& known = announced_.try_emplace(line_of(flock), -1).first->second;
  known = std::max(known, step);
}

void NetworkBoard::retire(std::uint64_t flock) {
  constexpr std::size_t kKept = 64;  // other ranks may still query them
  const std::lock_guard lock(mutex_);
  if (flock == 0 || !announced_.contains(line_of(flock))) return;
  retired_.push_back(line_of(flock));
  if (retired_.size() <= kKept) return;
  if (const auto oldest = announced_.find(retired_.front()); oldest != announced_.end()) {
    highest_of_forgotten_ = std::max(highest_of_forgotten_, oldest->second);
    announced_.erase(oldest);
  }
  retired_.pop_front();
}

Step NetworkBoard::last_step(std::uint32_t line) const {
  const auto found = announced_.find(line);
  return found == announced_.end() ? highest_of_forgotten_ : found->second;
}

// -1 for a dead rank.
std::optional<Step> NetworkBoard::announced(Rank rank, std::uint64_t flock) const {
  const std::uint32_t line = line_of(flock);
  if (rank == rank_) {
    const std::lock_guard lock(mutex_);
    return last_step(line);
  }
  if (!alive_(rank)) return -1;
  const std::uint64_t request = requests_.open();
  query(rank, line, request);
  const auto answer =
      requests_.wait_for_answer(rank, request, std::chrono::steady_clock::now() + kAnswerTimeout);
  std::int64_t step = -1;
  if (answer && answer->bytes == sizeof(step)) {
    std::memcpy(&step, answer->data(), sizeof(step));
    return step;
  }
  if (!alive_(rank)) return -1;
  return std::nullopt;
}

void NetworkBoard::publish(const WaitStatus& waiting) {
  {
    const std::lock_guard lock(mutex_);
    if (std::memcmp(&own_.waiting, &waiting, sizeof(waiting)) == 0) return;
    own_.waiting = waiting;
  }
  if (status_changed_) status_changed_();
}

WaitStatus NetworkBoard::waiting(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return rank == rank_ ? own_.waiting : statuses_[static_cast<std::size_t>(rank)].waiting;
}

LastPost NetworkBoard::posted(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return rank == rank_ ? own_.posted : statuses_[static_cast<std::size_t>(rank)].posted;
}

RankStatus NetworkBoard::own_status() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

void NetworkBoard::set_status(Rank rank, const RankStatus& status) {
  const std::lock_guard lock(mutex_);
  statuses_[static_cast<std::size_t>(rank)] = status;
}

void NetworkBoard::set_last_post(const MessageHeader& header) {
  const std::lock_guard lock(mutex_);
  own_.posted = {header.name, header.step};
}

// Sends under the lock, so that agreements leave in order. Request 0 expects no answer.
void NetworkBoard::query(Rank rank, std::uint32_t line, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  Frame request;
  request.kind = FrameKind::board_query;
  request.topic = line;
  request.number = number;
  std::size_t& known = known_agreements_[static_cast<std::size_t>(rank)];
  send_(rank, request, agreements_.data() + known, (agreements_.size() - known) * sizeof(Agreement));
  known = agreements_.size();
}

void NetworkBoard::queried(Rank from, const Frame& request, const Slice& payload) {
  Frame answer;
  answer.kind = FrameKind::answer;
  answer.number = request.number;
  std::int64_t step = -1;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at + sizeof(Agreement) <= payload.bytes; at += sizeof(Agreement)) {
      Agreement agreement;
      std::memcpy(&agreement, payload.data() + at, sizeof(agreement));
      add(agreement);
    }
    step = last_step(request.topic);
  }
  if (request.number != 0) send_(from, answer, &step, sizeof(step));
}

}  // namespace starling::fabric::network

#include "starling/fabric/network/board.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace starling::network {
namespace {

constexpr std::chrono::seconds kMostPatience{1};  // a stopped process answers nothing

// What a question has room for. Flocks that share a line count the higher step, which is never too low.
std::uint32_t line_of(std::uint64_t flock) {
  return static_cast<std::uint32_t>(flock ^ (flock >> 32));
}

}  // namespace

NetworkBoard::NetworkBoard(Rank rank, Rank size, std::unique_ptr<Ledger> ledger, Questions& questions,
                           Send send, std::function<bool(Rank)> alive)
    : rank_(rank),
      ledger_(std::move(ledger)),
      questions_(questions),
      send_(std::move(send)),
      alive_(std::move(alive)),
      told_(static_cast<std::size_t>(size)),
      heard_(static_cast<std::size_t>(size)) {}

void NetworkBoard::note(const Agreement& agreement) {
  if (by_key_.emplace(agreement.key, agreement.value).second) agreements_.push_back(agreement);
}

// Everybody is told, but nobody waited for: questions that depend on it carry it again.
std::int64_t NetworkBoard::agree(std::uint64_t key, std::int64_t proposal) {
  if (const auto known = agreed(key)) return *known;
  const std::int64_t value = ledger_->agree(key, proposal);
  {
    const std::lock_guard lock(mutex_);
    note({key, value});
  }
  for (Rank r = 0; r < static_cast<Rank>(told_.size()); ++r)
    if (r != rank_ && alive_(r)) tell(r, 0, 0);
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
  constexpr std::size_t kKept = 64;  // other members may still ask
  const std::lock_guard lock(mutex_);
  if (flock == 0 || !announced_.contains(line_of(flock))) return;
  retired_.push_back(line_of(flock));
  if (retired_.size() <= kKept) return;
  if (const auto oldest = announced_.find(retired_.front()); oldest != announced_.end()) {
    announced_elsewhere_ = std::max(announced_elsewhere_, oldest->second);
    announced_.erase(oldest);
  }
  retired_.pop_front();
}

Step NetworkBoard::started(std::uint32_t line) const {
  const auto found = announced_.find(line);
  return found == announced_.end() ? announced_elsewhere_ : found->second;
}

// -1 of a rank that is lost.
std::optional<Step> NetworkBoard::announced(Rank rank, std::uint64_t flock) const {
  const std::uint32_t line = line_of(flock);
  if (rank == rank_) {
    const std::lock_guard lock(mutex_);
    return started(line);
  }
  if (!alive_(rank)) return -1;
  const std::uint64_t question = questions_.open();
  tell(rank, line, question);
  const auto answer = questions_.answer(rank, question, std::chrono::steady_clock::now() + kMostPatience);
  std::int64_t step = -1;
  if (answer && answer->bytes == sizeof(step)) {
    std::memcpy(&step, answer->data(), sizeof(step));
    return step;
  }
  if (!alive_(rank)) return -1;
  return std::nullopt;
}

void NetworkBoard::publish(const Waiting& waiting) {
  {
    const std::lock_guard lock(mutex_);
    if (std::memcmp(&own_.waiting, &waiting, sizeof(waiting)) == 0) return;
    own_.waiting = waiting;
  }
  if (listener_) listener_();
}

Waiting NetworkBoard::waiting(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return rank == rank_ ? own_.waiting : heard_[static_cast<std::size_t>(rank)].waiting;
}

Posted NetworkBoard::posted(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return rank == rank_ ? own_.posted : heard_[static_cast<std::size_t>(rank)].posted;
}

Notes NetworkBoard::own_notes() const {
  const std::lock_guard lock(mutex_);
  return own_;
}

void NetworkBoard::heard(Rank rank, const Notes& notes) {
  const std::lock_guard lock(mutex_);
  heard_[static_cast<std::size_t>(rank)] = notes;
}

void NetworkBoard::note_post(const MessageHeader& header) {
  const std::lock_guard lock(mutex_);
  own_.posted = {header.name, header.step};
}

// The lock is held while it is sent: agreements go out in their order. Question 0 wants no answer.
void NetworkBoard::tell(Rank rank, std::uint32_t line, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  Frame question;
  question.kind = FrameKind::ask;
  question.topic = line;
  question.number = number;
  std::size_t& told = told_[static_cast<std::size_t>(rank)];
  send_(rank, question, agreements_.data() + told, (agreements_.size() - told) * sizeof(Agreement));
  told = agreements_.size();
}

void NetworkBoard::asked(Rank from, const Frame& question, const Slice& payload) {
  Frame answer;
  answer.kind = FrameKind::answer;
  answer.number = question.number;
  std::int64_t step = -1;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at + sizeof(Agreement) <= payload.bytes; at += sizeof(Agreement)) {
      Agreement agreement;
      std::memcpy(&agreement, payload.data() + at, sizeof(agreement));
      note(agreement);
    }
    step = started(question.topic);
  }
  if (question.number != 0) send_(from, answer, &step, sizeof(step));
}

}  // namespace starling::network

#include "starling/fabric/network/board.h"

#include <chrono>
#include <cstring>

namespace starling::network {
namespace {

constexpr std::chrono::seconds kMostPatience{10};  // a stopped process answers nothing: then it tells nothing

}  // namespace

NetworkBoard::NetworkBoard(Rank rank, Rank size, std::unique_ptr<Ledger> ledger, Questions& questions,
                           Send send, std::function<bool(Rank)> alive)
    : rank_(rank),
      ledger_(std::move(ledger)),
      questions_(questions),
      send_(std::move(send)),
      alive_(std::move(alive)),
      told_(static_cast<std::size_t>(size)) {}

void NetworkBoard::note(const Agreement& agreement) {
  if (by_key_.emplace(agreement.key, agreement.value).second) agreements_.push_back(agreement);
}

// Everybody knows before this returns.
std::int64_t NetworkBoard::agree(std::uint64_t key, std::int64_t proposal) {
  if (const auto known = agreed(key)) return *known;
  const std::int64_t value = ledger_->agree(key, proposal);
  {
    const std::lock_guard lock(mutex_);
    note({key, value});
  }
  std::vector<std::pair<Rank, std::uint64_t>> open;
  for (Rank r = 0; r < static_cast<Rank>(told_.size()); ++r)
    if (r != rank_ && alive_(r)) open.emplace_back(r, ask(r, 0));
  for (const auto& [rank, question] : open) answer_of(rank, question);
  return value;
}

std::optional<std::int64_t> NetworkBoard::agreed(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

void NetworkBoard::announce(Step step, std::uint32_t line) {
  const std::lock_guard lock(mutex_);
  announced_[line] = step + 1;
}

Step NetworkBoard::announced(Rank rank, std::uint32_t line) const {
  const auto notes = notes_of(rank, line);
  return notes ? notes->announced : -1;
}

void NetworkBoard::publish(const Waiting& waiting) {
  const std::lock_guard lock(mutex_);
  waiting_ = waiting;
}

Waiting NetworkBoard::waiting(Rank rank) const {
  const auto notes = notes_of(rank, 0);
  return notes ? notes->waiting : Waiting();
}

Posted NetworkBoard::posted(Rank rank) const {
  const auto notes = notes_of(rank, 0);
  return notes ? notes->posted : Posted();
}

void NetworkBoard::note_post(const MessageHeader& header) {
  const std::lock_guard lock(mutex_);
  posted_ = {header.name, header.step};
}

NetworkBoard::Notes NetworkBoard::own_notes(std::uint32_t line) const {
  return {announced_[line] - 1, posted_, waiting_};
}

// The lock is held while it is sent: agreements go out in their order.
std::uint64_t NetworkBoard::ask(Rank rank, std::uint32_t line) const {
  const std::lock_guard lock(mutex_);
  Frame question;
  question.kind = FrameKind::ask;
  question.topic = line;
  question.number = questions_.open();
  std::size_t& told = told_[static_cast<std::size_t>(rank)];
  send_(rank, question, agreements_.data() + told, (agreements_.size() - told) * sizeof(Agreement));
  told = agreements_.size();
  return question.number;
}

std::optional<NetworkBoard::Notes> NetworkBoard::answer_of(Rank rank, std::uint64_t question) const {
  const auto answer = questions_.answer(rank, question, std::chrono::steady_clock::now() + kMostPatience);
  if (!answer || answer->bytes != sizeof(Notes)) return std::nullopt;
  Notes notes;
  std::memcpy(&notes, answer->data(), sizeof(notes));
  return notes;
}

std::optional<NetworkBoard::Notes> NetworkBoard::notes_of(Rank rank, std::uint32_t line) const {
  if (rank == rank_) {
    const std::lock_guard lock(mutex_);
    return own_notes(line);
  }
  if (!alive_(rank)) return std::nullopt;
  return answer_of(rank, ask(rank, line));
}

void NetworkBoard::asked(Rank from, const Frame& question, const Slice& payload) {
  Frame answer;
  answer.kind = FrameKind::answer;
  answer.number = question.number;
  Notes notes;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at + sizeof(Agreement) <= payload.bytes; at += sizeof(Agreement)) {
      Agreement agreement;
      std::memcpy(&agreement, payload.data() + at, sizeof(agreement));
      note(agreement);
    }
    notes = own_notes(question.topic % kLines);
  }
  send_(from, answer, &notes, sizeof(notes));
}

}  // namespace starling::network

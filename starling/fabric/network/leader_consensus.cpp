#include "starling/fabric/network/leader_consensus.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::fabric::network {
namespace {

constexpr std::chrono::seconds kLongestAnswer{60};  // the leader's process may be stopped for so long

Frame frame_of(FrameKind kind, const LeaderConsensus::Agreement& agreement) {
  Frame frame;
  frame.kind = kind;
  frame.number = agreement.key;
  frame.message.sequence = static_cast<std::uint64_t>(agreement.value);
  return frame;
}

LeaderConsensus::Agreement agreement_of(const Frame& frame) {
  return {frame.number, static_cast<std::int64_t>(frame.message.sequence)};
}

}  // namespace

LeaderConsensus::LeaderConsensus(Rank rank, Rank size, Send send)
    : rank_(rank), send_(std::move(send)), left_(static_cast<std::size_t>(size)) {}

Rank LeaderConsensus::leader() const {
  Rank lowest = 0;
  while (lowest != rank_ && left_[static_cast<std::size_t>(lowest)]) ++lowest;
  return lowest;
}

std::int64_t LeaderConsensus::decide(const Agreement& proposal) {
  return agreements_.emplace(proposal.key, proposal.value).first->second;
}

std::int64_t LeaderConsensus::agree(std::uint64_t key, std::int64_t proposal) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto known = agreements_.find(key); known != agreements_.end()) return known->second;
    if (closed_)
      throw Error(fmt::format("rank {} has left the job and cannot agree on anything any more", rank_));
    const Rank asked = leader();
    if (asked == rank_) return decide({key, proposal});
    lock.unlock();
    send_(asked, frame_of(FrameKind::propose, {key, proposal}));
    lock.lock();
    if (!changed_.wait_for(lock, kLongestAnswer,
                           [&] { return closed_ || leader() != asked || agreements_.contains(key); }))
      throw Error(fmt::format(
          "rank {}, the leader of the consensus, has not answered for {} s; is its process stopped?", asked,
          kLongestAnswer.count()));
  }
}

void LeaderConsensus::proposed(Rank from, const Frame& frame) {
  Agreement agreement = agreement_of(frame);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;  // the sender will learn that this rank has left, and ask the next leader
    if (leader() != rank_) {
      early_.push_back({from, agreement});
      return;
    }
    agreement.value = decide(agreement);
  }
  send_(from, frame_of(FrameKind::decided, agreement));
}

void LeaderConsensus::decided(const Frame& frame) {
  {
    const std::lock_guard lock(mutex_);
    decide(agreement_of(frame));
  }
  changed_.notify_all();
}

void LeaderConsensus::left(Rank peer, const Slice& agreements) {
  std::vector<Proposal> answers;
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(peer)] = true;
    for (std::size_t at = 0; at + sizeof(Agreement) <= agreements.bytes; at += sizeof(Agreement)) {
      Agreement agreement;
      std::memcpy(&agreement, agreements.data() + at, sizeof(agreement));
      decide(agreement);
    }
    if (leader() == rank_ && !closed_) answers.swap(early_);
    for (Proposal& answer : answers) answer.agreement.value = decide(answer.agreement);
  }
  changed_.notify_all();
  for (const Proposal& answer : answers) send_(answer.from, frame_of(FrameKind::decided, answer.agreement));
}

std::vector<LeaderConsensus::Agreement> LeaderConsensus::close() {
  std::vector<Agreement> all;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [key, value] : agreements_) all.push_back({key, value});
  }
  changed_.notify_all();
  return all;
}

}  // namespace starling::fabric::network

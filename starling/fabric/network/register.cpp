#include "starling/fabric/network/register.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::network {
namespace {

constexpr std::chrono::seconds kLongestAnswer{60};  // the keeper's process is stopped

Frame frame_of(FrameKind kind, const Register::Entry& entry) {
  Frame frame;
  frame.kind = kind;
  frame.number = entry.key;
  frame.message.sequence = static_cast<std::uint64_t>(entry.value);
  return frame;
}

Register::Entry entry_of(const Frame& frame) {
  return {frame.number, static_cast<std::int64_t>(frame.message.sequence)};
}

}  // namespace

Register::Register(Rank rank, Rank size, Send send)
    : rank_(rank), send_(std::move(send)), left_(static_cast<std::size_t>(size)) {}

Rank Register::keeper() const {
  Rank lowest = 0;
  while (lowest != rank_ && left_[static_cast<std::size_t>(lowest)]) ++lowest;
  return lowest;
}

std::int64_t Register::decide(const Entry& proposal) {
  return entries_.emplace(proposal.key, proposal.value).first->second;
}

std::int64_t Register::agree(std::uint64_t key, std::int64_t proposal) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto known = entries_.find(key); known != entries_.end()) return known->second;
    if (closed_) throw Error(fmt::format("rank {} has left and agrees on nothing any more", rank_));
    const Rank asked = keeper();
    if (asked == rank_) return decide({key, proposal});
    lock.unlock();
    send_(asked, frame_of(FrameKind::propose, {key, proposal}));
    lock.lock();
    if (!changed_.wait_for(lock, kLongestAnswer,
                           [&] { return closed_ || keeper() != asked || entries_.contains(key); }))
      throw Error(fmt::format("rank {}, which keeps what ranks agree on, has not answered for {} s", asked,
                              kLongestAnswer.count()));
  }
}

void Register::proposed(Rank from, const Frame& frame) {
  Entry entry = entry_of(frame);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;  // it hears that this rank has left, and asks the next one
    if (keeper() != rank_) {
      early_.push_back({from, entry});
      return;
    }
    entry.value = decide(entry);
  }
  send_(from, frame_of(FrameKind::decided, entry));
}

void Register::decided(const Frame& frame) {
  {
    const std::lock_guard lock(mutex_);
    decide(entry_of(frame));
  }
  changed_.notify_all();
}

void Register::left(Rank peer, const Slice& entries) {
  std::vector<Proposal> answers;
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(peer)] = true;
    for (std::size_t at = 0; at + sizeof(Entry) <= entries.bytes; at += sizeof(Entry)) {
      Entry entry;
      std::memcpy(&entry, entries.data() + at, sizeof(entry));
      decide(entry);
    }
    if (keeper() == rank_ && !closed_) answers.swap(early_);
    for (Proposal& answer : answers) answer.entry.value = decide(answer.entry);
  }
  changed_.notify_all();
  for (const Proposal& answer : answers) send_(answer.from, frame_of(FrameKind::decided, answer.entry));
}

std::vector<Register::Entry> Register::close() {
  std::vector<Entry> all;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [key, value] : entries_) all.push_back({key, value});
  }
  changed_.notify_all();
  return all;
}

}  // namespace starling::network

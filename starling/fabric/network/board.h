#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "starling/fabric/board.h"
#include "starling/fabric/network/notes.h"
#include "starling/fabric/network/questions.h"
#include "starling/fabric/network/wire.h"

namespace starling::network {

/// What ranks wait for and have posted is known from their heartbeats. Which step a rank has started is
/// asked, and its fabric answers without troubling the program. Questions carry all agreements that the other
/// may not know yet, so that what it announces afterwards is announced by one who knows.
class NetworkBoard final : public Board {
 public:
  /// `send` never blocks; `alive` says whether an answer can still come.
  using Send = std::function<void(Rank to, const Frame& frame, const void* payload, std::size_t bytes)>;
  NetworkBoard(Rank rank, Rank size, std::unique_ptr<Ledger> ledger, Questions& questions, Send send,
               std::function<bool(Rank)> alive);

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override;
  std::optional<std::int64_t> agreed(std::uint64_t key) const override;
  void announce(std::uint64_t flock, Step step) override;
  std::optional<Step> announced(Rank rank, std::uint64_t flock) const override;
  void retire(std::uint64_t flock) override;
  void publish(const Waiting& waiting) override;
  Waiting waiting(Rank rank) const override;
  Posted posted(Rank rank) const override;

  /// What this rank tells of itself, and what `rank` told.
  Notes own_notes() const;
  void heard(Rank rank, const Notes& notes);
  /// Called when there is something new to tell.
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }

  /// This rank has posted a message.
  void note_post(const MessageHeader& header);
  /// From the wire: a question.
  void asked(Rank from, const Frame& question, const Slice& payload);

 private:
  struct Agreement {
    std::uint64_t key;
    std::int64_t value;
  };
  void note(const Agreement& agreement);
  /// This rank's last step on a line; with the lock held.
  Step started(std::uint32_t line) const;
  void tell(Rank rank, std::uint32_t line, std::uint64_t question) const;

  Rank rank_;
  std::unique_ptr<Ledger> ledger_;
  Questions& questions_;
  Send send_;
  std::function<bool(Rank)> alive_;
  mutable std::mutex mutex_;
  std::vector<Agreement> agreements_;  // in the order in which they were heard
  std::unordered_map<std::uint64_t, std::int64_t> by_key_;
  mutable std::vector<std::size_t> told_;              // by rank: so many of them
  std::unordered_map<std::uint32_t, Step> announced_;  // by line, see line_of
  Step announced_elsewhere_ = -1;                      // the highest of lines that were forgotten
  std::deque<std::uint32_t> retired_;                  // lines that may be forgotten
  Notes own_;
  std::vector<Notes> heard_;  // by rank
  std::function<void()> listener_;
};

}  // namespace starling::network

#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "starling/fabric/board.h"
#include "starling/fabric/network/questions.h"
#include "starling/fabric/network/wire.h"

namespace starling::network {

/// Notes that stay with their writer: who wants to know asks it, and its fabric answers without troubling the
/// program. Questions carry all agreements that the other may not know yet, so that what it announces
/// afterwards is announced by one who knows.
class NetworkBoard final : public Board {
 public:
  /// `send` never blocks; `alive` says whether an answer can still come.
  using Send = std::function<void(Rank to, const Frame& frame, const void* payload, std::size_t bytes)>;
  NetworkBoard(Rank rank, Rank size, std::unique_ptr<Ledger> ledger, Questions& questions, Send send,
               std::function<bool(Rank)> alive);

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override;
  std::optional<std::int64_t> agreed(std::uint64_t key) const override;
  void announce(Step step, std::uint32_t line) override;
  Step announced(Rank rank, std::uint32_t line) const override;
  void publish(const Waiting& waiting) override;
  Waiting waiting(Rank rank) const override;
  Posted posted(Rank rank) const override;

  /// This rank has posted a message.
  void note_post(const MessageHeader& header);
  /// From the wire: a question.
  void asked(Rank from, const Frame& question, const Slice& payload);

 private:
  struct Agreement {
    std::uint64_t key;
    std::int64_t value;
  };
  /// What a rank tells of itself.
  struct Notes {
    std::int64_t announced = -1;  // of the line in question
    Posted posted;
    Waiting waiting;
  };

  void note(const Agreement& agreement);
  Notes own_notes(std::uint32_t line) const;
  std::uint64_t ask(Rank rank, std::uint32_t line) const;
  std::optional<Notes> answer_of(Rank rank, std::uint64_t question) const;
  std::optional<Notes> notes_of(Rank rank, std::uint32_t line) const;

  Rank rank_;
  std::unique_ptr<Ledger> ledger_;
  Questions& questions_;
  Send send_;
  std::function<bool(Rank)> alive_;
  mutable std::mutex mutex_;
  std::vector<Agreement> agreements_;  // in the order in which they were heard
  std::unordered_map<std::uint64_t, std::int64_t> by_key_;
  mutable std::vector<std::size_t> told_;  // by rank: so many of them
  std::array<Step, kLines> announced_{};   // + 1
  Waiting waiting_;
  Posted posted_;
};

}  // namespace starling::network

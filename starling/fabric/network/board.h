#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "starling/fabric/board.h"
#include "starling/fabric/network/pending_requests.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric::network {

/// The status board over a network. A rank's status comes with its heartbeats. The step that a rank has
/// started is queried, and its fabric answers without involving the program. Each query carries all
/// agreements that the peer may not know yet, so that it knows them when it announces its next step. Owned by
/// the network fabric.
class NetworkBoard final : public Board {
 public:
  /// `send` must not block; `alive` says whether an answer can still come.
  using Send = std::function<void(Rank to, const Frame& frame, const void* payload, std::size_t bytes)>;
  NetworkBoard(Rank rank, Rank size, std::unique_ptr<Consensus> consensus, PendingRequests& requests,
               Send send, std::function<bool(Rank)> alive);

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override;
  std::optional<std::int64_t> agreed(std::uint64_t key) const override;
  void announce(std::uint64_t flock, Step step) override;
  std::optional<Step> announced(Rank rank, std::uint64_t flock) const override;
  void retire(std::uint64_t flock) override;
  void publish(const WaitStatus& waiting) override;
  WaitStatus waiting(Rank rank) const override;
  LastPost posted(Rank rank) const override;

  /// This rank's status, to be sent, and the received one of `rank`.
  RankStatus own_status() const;
  void set_status(Rank rank, const RankStatus& status);
  /// `listener` is called when this rank's status has changed.
  void on_status_change(std::function<void()> listener) { status_changed_ = std::move(listener); }

  /// This rank has posted a message.
  void set_last_post(const MessageHeader& header);
  /// Called by the transport: another rank's query.
  void queried(Rank from, const Frame& request, const Slice& payload);

 private:
  struct Agreement {
    std::uint64_t key;
    std::int64_t value;
  };
  void add(const Agreement& agreement);
  /// This rank's last step on a line; requires the mutex.
  Step last_step(std::uint32_t line) const;
  void query(Rank rank, std::uint32_t line, std::uint64_t request) const;

  Rank rank_;
  std::unique_ptr<Consensus> consensus_;
  PendingRequests& requests_;
  Send send_;
  std::function<bool(Rank)> alive_;
  mutable std::mutex mutex_;
  std::vector<Agreement> agreements_;  // in the order in which this rank learned them
  std::unordered_map<std::uint64_t, std::int64_t> by_key_;
  mutable std::vector<std::size_t> known_agreements_;  // by rank: how many of agreements_ it knows
  std::unordered_map<std::uint32_t, Step> announced_;  // by line, see line_of
  Step highest_of_forgotten_ = -1;                     // the highest step of forgotten lines
  std::deque<std::uint32_t> retired_;                  // lines that may be forgotten
  RankStatus own_;
  std::vector<RankStatus> statuses_;  // by rank
  std::function<void()> status_changed_;
};

}  // namespace starling::fabric::network

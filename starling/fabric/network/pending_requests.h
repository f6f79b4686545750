#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/memory.h"

namespace starling::fabric::network {

/// This rank's requests to other ranks (queries and remote calls) that have not been answered yet. Owned by
/// the network fabric. Thread-safe.
class PendingRequests {
 public:
  /// `alive` says whether an answer of a rank can still come.
  explicit PendingRequests(std::function<bool(Rank)> alive) : alive_(std::move(alive)) {}

  /// Opens a request and returns its number; the caller sends it.
  std::uint64_t open();
  /// Waits for the answer and closes the request. Empty if it was refused, if the peer died, or after the
  /// deadline.
  std::optional<Slice> wait_for_answer(Rank from, std::uint64_t request, Deadline deadline);

  /// Called by the transport: the answer, or empty for a refusal.
  void answered(std::uint64_t request, std::optional<Slice> answer);
  /// A rank has died: requests to it end.
  void recheck_peers() { changed_.notify_all(); }

 private:
  struct Request {
    bool answered = false;
    std::optional<Slice> answer;
  };

  std::function<bool(Rank)> alive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Request> open_;
};

}  // namespace starling::fabric::network

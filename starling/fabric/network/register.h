#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "starling/fabric/network/wire.h"

namespace starling::network {

/// The register of all ranks where an engine has no store. The lowest rank that has not left keeps it: others
/// propose to it, and who leaves tells everybody what it knows, so that the next one goes on from there. Only
/// the leave of a rank counts, never its silence: it decides nothing afterwards, so there are never two
/// keepers.
class Register {
 public:
  struct Entry {
    std::uint64_t key;
    std::int64_t value;
  };
  /// Never blocks.
  using Send = std::function<void(Rank to, const Frame& frame)>;
  Register(Rank rank, Rank size, Send send);

  /// Waits for the answer of who keeps it.
  std::int64_t agree(std::uint64_t key, std::int64_t proposal);

  /// From the wire.
  void proposed(Rank from, const Frame& frame);
  void decided(const Frame& frame);
  void left(Rank peer, const Slice& entries);

  /// This rank leaves and decides nothing any more: what it knows, for everybody.
  std::vector<Entry> close();

 private:
  struct Proposal {
    Rank from;
    Entry entry;
  };

  Rank keeper() const;
  std::int64_t decide(const Entry& proposal);

  Rank rank_;
  Send send_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> left_;
  bool closed_ = false;
  std::map<std::uint64_t, std::int64_t> entries_;
  std::vector<Proposal> early_;  // from who has heard before this rank that it is the keeper
};

}  // namespace starling::network

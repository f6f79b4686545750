#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "starling/base/types.h"
#include "starling/fabric/network/frame.h"

namespace starling::network {

/// Which long payloads may be on their way, out of a rank or into it. Those of earlier steps come first,
/// whoever they are for. Without that, a rank that is ahead shares its link between this step's block and the
/// next one's, and so does who receives two steps' blocks at once: whoever waits for the earlier one falls
/// behind, and so on until the flock is out of step and half of its links idle. Both ends go by the same
/// order, so that somebody can always go on.
///
/// A payload also waits while there is enough on its way to the same peer: an engine writes in order, and
/// what is said in between (that there is room for the peer's own) must not wait behind many of ours. Who has
/// not moved for long, as steps go here, holds nobody else up: its host may be stopped.
class Turns {
 public:
  using Clock = std::chrono::steady_clock;
  /// So many further payloads of `peer` may go now.
  struct Release {
    Rank peer;
    std::size_t payloads;
  };
  using Releases = std::vector<Release>;

  explicit Turns(Rank size) : moved_(static_cast<std::size_t>(size)), lost_(static_cast<std::size_t>(size)) {}

  /// One more, behind those of this peer that are here.
  Releases add(Rank peer, const Frame& frame);
  /// The first of this peer's payloads has arrived.
  Releases done(Rank peer);
  Releases lost(Rank peer);
  /// Now and then, for who waits behind somebody that does not move.
  Releases look();

 private:
  struct Entry {
    Rank peer;
    std::uint64_t order;
    bool in_turn;
    bool goes;
  };
  Releases release();
  bool may_go(const Entry& entry, Clock::time_point now) const;
  void note_pace(const Entry& entry, Clock::time_point now);
  Clock::duration patience() const;
  Clock::time_point& moved(Rank peer) { return moved_[static_cast<std::size_t>(peer)]; }

  std::mutex mutex_;
  std::vector<Entry> entries_;            // that have not arrived
  std::size_t held_ = 0;                  // of these, which do not go yet
  std::vector<Clock::time_point> moved_;  // when something of a peer last arrived, or began to be owed
  std::vector<bool> lost_;
  std::uint64_t newest_ = 0;  // order of what has a turn
  Clock::time_point newest_came_{};
  Clock::duration pace_{};  // from one order to the next, lately at most
};

/// When long payloads leave and come in, over all links of a rank.
struct Traffic {
  Turns out;
  Turns in;
  std::function<void(const Turns::Releases&)> send;     // by the links that are named
  std::function<void(const Turns::Releases&)> receive;  // the same
};

}  // namespace starling::network

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::fabric::network {

/// The state of a peer in the view of one rank.
enum class PeerState : std::uint8_t {
  reachable,  // it sends heartbeats, or at least its host acknowledges what is sent to it
  silent,     // nothing comes from its host
  closed,     // its end of the connection is closed
  left,       // it said that it leaves
  excluded,   // the job continues without it
};

/// What the kernel knows about the TCP connections to a peer.
enum class TcpContact : std::uint8_t { unknown, acknowledged, unanswered };

/// How rank `of` sees all ranks, as it reported itself; the row with the highest version counts.
struct StateRow {
  Rank of = 0;
  std::uint32_t version = 0;
  std::vector<PeerState> states;
};

/// Decides which ranks are still part of the job, from what all ranks report about each other. Every rank
/// sends its own row to the others and forwards theirs, so that ranks that reach each other in any way know
/// the same.
///
/// A rank whose connections are closed at every rank that had one has crashed: it is dead at once. Silence
/// takes `bound` and a vote: ranks that reach each other, directly or through others, form a group. The group
/// with more than half of the members continues (of two halves the one with the lowest rank); it considers
/// all other ranks dead, and the ranks of other groups know that they are cut off. Members are all ranks
/// except those that have crashed or left, or that the members have agreed to exclude. If this rank does not
/// reach another one of its own group directly, only the link between the two is broken. A stopped process
/// (SIGSTOP) remains reachable, because its host acknowledges what is sent to it.
///
/// Owned by MonitoredTransport. Not thread-safe. The caller passes in the time.
class FailureDetector {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  FailureDetector(Rank rank, Rank size, Clock::duration bound, Time now);

  Clock::duration heartbeat_interval() const { return bound_ / 20; }

  /// Something came from the peer over the direct connection.
  void heard(Rank peer, Time now);
  /// Takes a rank's row, which may have come through other ranks. True if it is new, to be forwarded.
  bool update_row(const StateRow& row, Time now);
  void connection_closed(Rank peer, Time now);
  void left(Rank peer);
  /// The members have agreed to continue without the peer.
  void exclude(Rank peer);
  /// The direct connection to the peer is not used any more.
  void connection_abandoned(Rank peer);

  struct Decision {
    std::vector<Rank> dead;    // newly
    std::vector<Rank> broken;  // alive, but the direct connection is broken: abandon it
    bool news = false;         // this rank's row has changed
  };
  /// Draws conclusions from all reports so far. Call it at every heartbeat and after every change.
  Decision evaluate(Time now, const std::function<TcpContact(Rank)>& contact);

  /// The rows to send to the others: this rank's own and, while anything is wrong, all that it knows.
  std::vector<StateRow> rows_to_send();
  /// Why this rank is no longer part of the job; empty while it is.
  const std::string& exclusion_reason() const { return exclusion_reason_; }
  bool reaches(Rank peer) const { return mine(peer) == PeerState::reachable; }
  /// The next rank on a path to `peer` that avoids the direct connection; -1 if there is none.
  Rank next_hop(Rank peer) const;

 private:
  struct Peer {
    Time heard;
    bool ever = false;  // heard
    bool closed = false;
    bool abandoned = false;
    bool removed = false;  // for all members: it has left or crashed, or they have agreed to exclude it
    Time missing{};        // since when it has been unreachable in its current state
    Time apart{};          // since when it has been in another group
    StateRow row;
    Time row_updated;
  };

  Peer& peer(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  PeerState view(Rank of, Rank about) const { return peer(of).row.states[static_cast<std::size_t>(about)]; }
  PeerState& mine(Rank r) { return peer(rank_).row.states[static_cast<std::size_t>(r)]; }
  PeerState mine(Rank r) const { return view(rank_, r); }
  bool is_member(Rank r) const { return mine(r) != PeerState::left && mine(r) != PeerState::excluded; }
  /// Whether the rank's row arrived recently: it answers.
  bool is_responsive(Rank r) const { return evaluated_ - peer(r).row_updated < 6 * heartbeat_interval(); }
  bool linked(Rank a, Rank b) const {
    return view(a, b) == PeerState::reachable && view(b, a) == PeerState::reachable;
  }
  std::vector<bool> group() const;
  void check_connections(const std::function<TcpContact(Rank)>& contact, Decision& decision);
  bool unreachable(Rank r, const std::function<TcpContact(Rank)>& contact) const;
  bool crashed(Rank r, const std::vector<bool>& group) const;
  bool has_quorum(const std::vector<bool>& group) const;
  void exclude_self(const std::vector<bool>& group);
  void declare_dead(Rank r, bool crashed, Decision& decision);
  std::string list(const std::function<bool(Rank)>& which) const;

  Rank rank_;
  Rank size_;
  Clock::duration bound_;
  Time evaluated_;
  Time minority_since_{};  // since when this rank's group has been too small
  std::vector<Peer> peers_;
  std::string exclusion_reason_;
};

}  // namespace starling::fabric::network

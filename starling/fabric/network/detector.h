#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::network {

/// How a rank sees another.
enum class Hearing : std::uint8_t {
  heard,     // it speaks, or at least its host acknowledges what it is sent
  silent,    // nothing comes from its host
  closed,    // its end of the connection is gone
  left,      // it said so
  excluded,  // the job goes on without it
};

/// What the kernel knows of the connections to a peer.
enum class Contact : std::uint8_t { unknown, acknowledged, unanswered };

/// How `of` sees everybody, as it said itself; the newest version counts.
struct Row {
  Rank of = 0;
  std::uint32_t version = 0;
  std::vector<Hearing> hearing;
};

/// Decides from what all ranks hear of each other who is part of the job. Every rank tells the others its row
/// and passes on those of others, so that ranks which reach each other in any way know the same.
///
/// A rank whose connections are closed at everybody who had one has crashed: it is dead at once. Silence
/// takes `bound`, and counting: ranks that hear each other, directly or through others, form a group. The
/// group with more than half of the members goes on, of two halves the one with the lowest rank; all others
/// are dead to it, and ranks of other groups know that they are cut off. Members are all ranks but those that
/// have crashed or left, or that the members have agreed to do without. A rank of the same group that this
/// one does not hear itself has a broken link only. A stopped process is acknowledged by its host: it is
/// heard.
///
/// Not thread-safe. Time comes in from outside.
class Detector {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  Detector(Rank rank, Rank size, Clock::duration bound, Time now);

  Clock::duration beat() const { return bound_ / 20; }

  /// Something came from it over the connection between the two.
  void heard(Rank peer, Time now);
  /// True where it says something new, for this rank to pass on.
  bool told(const Row& row, Time now);
  void closed(Rank peer, Time now);
  void left(Rank peer);
  /// The members have agreed to go on without it.
  void exclude(Rank peer);
  /// The connection to it is not used any more.
  void cut(Rank peer);

  struct Verdict {
    std::vector<Rank> dead;    // from now on
    std::vector<Rank> broken;  // alive, but the connection is not: to be cut
    bool news = false;         // this rank's row has changed
  };
  Verdict look(Time now, const std::function<Contact(Rank)>& contact);

  /// What to tell others: this rank's row, and where anything is wrong, all that it knows.
  std::vector<Row> rows();
  /// Why this rank is no longer part of the job; empty while it is.
  const std::string& exclusion() const { return exclusion_; }
  bool hears(Rank peer) const { return mine(peer) == Hearing::heard; }
  /// The next rank on a way to `peer` that does not use the connection to it; -1 where there is none.
  Rank next_to(Rank peer) const;

 private:
  struct Peer {
    Time heard;
    bool ever = false;  // heard
    bool closed = false;
    bool cut = false;
    bool out = false;  // for everybody: it has left, crashed, or the members have agreed
    Time missing{};    // since when it has not been heard, in this state
    Time apart{};      // since when it has been in another group
    Row row;
    Time told;
  };

  Peer& peer(Rank r) { return peers_[static_cast<std::size_t>(r)]; }
  const Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  Hearing says(Rank of, Rank about) const { return peer(of).row.hearing[static_cast<std::size_t>(about)]; }
  Hearing& mine(Rank r) { return peer(rank_).row.hearing[static_cast<std::size_t>(r)]; }
  Hearing mine(Rank r) const { return says(rank_, r); }
  bool counts(Rank r) const { return mine(r) != Hearing::left && mine(r) != Hearing::excluded; }
  bool fresh(Rank r) const { return looked_ - peer(r).told < 6 * beat(); }
  bool linked(Rank a, Rank b) const { return says(a, b) == Hearing::heard && says(b, a) == Hearing::heard; }
  std::vector<bool> group() const;
  void look_at_connections(const std::function<Contact(Rank)>& contact, Verdict& verdict);
  bool unreachable(Rank r, const std::function<Contact(Rank)>& contact) const;
  bool crashed(Rank r, const std::vector<bool>& group) const;
  bool goes_on(const std::vector<bool>& group) const;
  void end(const std::vector<bool>& group);
  void die(Rank r, bool crashed, Verdict& verdict);
  std::string list(const std::function<bool(Rank)>& which) const;

  Rank rank_;
  Rank size_;
  Clock::duration bound_;
  Time looked_;
  Time lonely_{};  // since when this rank's group has been too small
  std::vector<Peer> peers_;
  std::string exclusion_;
};

}  // namespace starling::network

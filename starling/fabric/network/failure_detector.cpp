#include "starling/fabric/network/failure_detector.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace starling::fabric::network {

FailureDetector::FailureDetector(Rank rank, Rank size, Clock::duration bound, Time now)
    : rank_(rank), size_(size), bound_(bound), evaluated_(now), peers_(static_cast<std::size_t>(size)) {
  for (Rank r = 0; r < size_; ++r) {
    peer(r).heard = peer(r).row_updated = now;
    peer(r).row = {r, 0, std::vector<PeerState>(static_cast<std::size_t>(size), PeerState::reachable)};
  }
}

void FailureDetector::heard(Rank from, Time now) {
  peer(from).heard = now;
  peer(from).ever = true;
}

bool FailureDetector::update_row(const StateRow& row, Time now) {
  if (row.of < 0 || row.of >= size_ || row.of == rank_ || row.states.size() != peers_.size()) return false;
  Peer& one = peer(row.of);
  if (row.version <= one.row.version) return false;
  const bool news = one.row.states != row.states;
  one.row = row;
  one.row_updated = now;
  if (is_member(row.of) && row.states[static_cast<std::size_t>(rank_)] == PeerState::excluded &&
      exclusion_reason_.empty())
    exclusion_reason_ =
        fmt::format("rank {} was excluded: rank {} reports that the job continues with ranks {}", rank_,
                    row.of, list([&](Rank r) {
                      const PeerState seen = row.states[static_cast<std::size_t>(r)];
                      return r != rank_ && seen != PeerState::excluded && seen != PeerState::left;
                    }));
  return news;
}

void FailureDetector::connection_closed(Rank which, Time now) {
  if (peer(which).closed) return;
  peer(which).closed = true;
  if (mine(which) == PeerState::reachable) peer(which).missing = now;
}

void FailureDetector::left(Rank which) {
  if (mine(which) != PeerState::excluded) mine(which) = PeerState::left;
  peer(which).removed = true;
}

void FailureDetector::exclude(Rank which) {
  mine(which) = PeerState::excluded;
  peer(which).removed = true;
}

void FailureDetector::connection_abandoned(Rank which) {
  peer(which).abandoned = true;
}

// The ranks that this rank reaches, directly or through others.
std::vector<bool> FailureDetector::group() const {
  std::vector<bool> found(peers_.size());
  found[static_cast<std::size_t>(rank_)] = true;
  for (std::deque<Rank> next = {rank_}; !next.empty(); next.pop_front())
    for (Rank r = 0; r < size_; ++r)
      if (!found[static_cast<std::size_t>(r)] && !peer(r).removed && linked(next.front(), r)) {
        found[static_cast<std::size_t>(r)] = true;
        next.push_back(r);
      }
  return found;
}

bool FailureDetector::has_quorum(const std::vector<bool>& group) const {
  int members = 0;
  int here = 0;
  Rank lowest = -1;
  for (Rank r = 0; r < size_; ++r) {
    if (peer(r).removed) continue;
    if (lowest < 0) lowest = r;
    ++members;
    here += group[static_cast<std::size_t>(r)] ? 1 : 0;
  }
  return 2 * here > members || (2 * here == members && group[static_cast<std::size_t>(lowest)]);
}

// A rank has crashed if every other rank of the group has seen its connection end. A rank that does not
// respond abstains after a while, since its process may be stopped.
bool FailureDetector::crashed(Rank which, const std::vector<bool>& group) const {
  const bool waited = evaluated_ - peer(which).missing > 7 * heartbeat_interval();
  for (Rank r = 0; r < size_; ++r) {
    if (r == which || r == rank_ || !group[static_cast<std::size_t>(r)]) continue;
    const PeerState one = view(r, which);
    if (one == PeerState::closed || one == PeerState::excluded || one == PeerState::left) continue;
    if (!waited || is_responsive(r)) return false;
  }
  return true;
}

// If the kernel does not know, the only evidence is the silence of a peer that has sent something before.
bool FailureDetector::unreachable(Rank which, const std::function<TcpContact(Rank)>& contact) const {
  const TcpContact known = contact(which);
  return known == TcpContact::unanswered || (known == TcpContact::unknown && peer(which).ever);
}

void FailureDetector::declare_dead(Rank which, bool crashed, Decision& decision) {
  peer(which).removed = peer(which).removed || crashed;
  mine(which) = PeerState::excluded;
  decision.dead.push_back(which);
  decision.news = true;
}

void FailureDetector::check_connections(const std::function<TcpContact(Rank)>& contact, Decision& decision) {
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !is_member(r)) continue;
    Peer& one = peer(r);
    PeerState state = PeerState::reachable;
    if (one.closed)
      state = PeerState::closed;
    else if (one.abandoned || (evaluated_ - one.heard > 16 * heartbeat_interval() && unreachable(r, contact)))
      state = PeerState::silent;
    if (state == mine(r)) continue;
    if (mine(r) == PeerState::reachable) one.missing = evaluated_;
    mine(r) = state;
    decision.news = true;
  }
}

FailureDetector::Decision FailureDetector::evaluate(Time now,
                                                    const std::function<TcpContact(Rank)>& contact) {
  Decision decision;
  // If this rank itself was stopped, its peers' silence meanwhile does not count.
  if (now - evaluated_ > 4 * heartbeat_interval())
    for (Peer& one : peers_)
      for (Time* time : {&one.heard, &one.row_updated, &one.missing, &one.apart})
        if (*time != Time()) *time += now - evaluated_;
  evaluated_ = now;
  if (!exclusion_reason_.empty()) return decision;
  check_connections(contact, decision);
  std::vector<bool> own_group = group();
  for (Rank r = 0; r < size_; ++r)
    if (r != rank_ && is_member(r) && mine(r) == PeerState::closed && crashed(r, own_group))
      declare_dead(r, true, decision);
  own_group = group();
  if (has_quorum(own_group))
    minority_since_ = {};
  else if (minority_since_ == Time())
    minority_since_ = now;
  else
    exclude_self(own_group);
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !is_member(r)) continue;
    Peer& one = peer(r);
    const bool same_group = own_group[static_cast<std::size_t>(r)];
    if (same_group || minority_since_ != Time())
      one.apart = {};
    else if (one.apart == Time())
      one.apart = now;
    else if (now - one.apart > 3 * heartbeat_interval() &&
             (mine(r) == PeerState::silent || now - one.missing > bound_))
      declare_dead(r, false, decision);
    if (same_group && mine(r) != PeerState::reachable && !one.abandoned &&
        now - one.missing > 2 * heartbeat_interval() && next_hop(r) >= 0)
      decision.broken.push_back(r);
  }
  return decision;
}

void FailureDetector::exclude_self(const std::vector<bool>& group) {
  // Wait: other ranks may be about to see the same, and many of the missing ranks may turn out to have
  // crashed.
  const auto& row = peer(rank_).row.states;
  const bool undecided = std::find(row.begin(), row.end(), PeerState::closed) != row.end();
  if (evaluated_ - minority_since_ < (undecided ? 10 : 4) * heartbeat_interval()) return;
  const auto in = [&](Rank r) -> bool { return group[static_cast<std::size_t>(r)]; };
  exclusion_reason_ = fmt::format(
      "rank {} is cut off: for {:.1f} s it has received nothing from rank(s) {}. The ranks that it reaches "
      "({}) "
      "are not "
      "a majority of ranks {}, and the others may continue without it",
      rank_, std::chrono::duration<double>(bound_).count(),
      list([&](Rank r) { return !peer(r).removed && !in(r); }), list(in),
      list([&](Rank r) { return !peer(r).removed; }));
}

std::vector<StateRow> FailureDetector::rows_to_send() {
  StateRow& own = peer(rank_).row;
  ++own.version;
  std::vector<StateRow> all = {own};
  const bool fine = std::all_of(peers_.begin(), peers_.end(), [](const Peer& one) {
    return std::all_of(one.row.states.begin(), one.row.states.end(), [](PeerState seen) {
      return seen == PeerState::reachable || seen == PeerState::left;
    });
  });
  for (Rank r = 0; !fine && r < size_; ++r)
    if (r != rank_ && !peer(r).removed) all.push_back(peer(r).row);
  return all;
}

// Breadth-first search from this rank; unresponsive ranks cannot forward.
Rank FailureDetector::next_hop(Rank which) const {
  std::vector<Rank> first(peers_.size(), -1);
  std::deque<Rank> next;
  for (Rank r = 0; r < size_; ++r)
    if (r != rank_ && r != which && linked(rank_, r) && is_responsive(r)) {
      first[static_cast<std::size_t>(r)] = r;
      next.push_back(r);
    }
  for (; !next.empty(); next.pop_front())
    for (Rank r = 0; r < size_; ++r) {
      if (r == rank_ || first[static_cast<std::size_t>(r)] >= 0 || !linked(next.front(), r)) continue;
      first[static_cast<std::size_t>(r)] = first[static_cast<std::size_t>(next.front())];
      if (r == which) return first[static_cast<std::size_t>(r)];
      if (is_responsive(r)) next.push_back(r);
    }
  return -1;
}

std::string FailureDetector::list(const std::function<bool(Rank)>& which) const {
  std::string text;
  for (Rank r = 0; r < size_; ++r)
    if (which(r)) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text.empty() ? "none" : text;
}

}  // namespace starling::fabric::network

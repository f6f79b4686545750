#include "starling/fabric/network/detector.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace starling::network {

Detector::Detector(Rank rank, Rank size, Clock::duration bound, Time now)
    : rank_(rank), size_(size), bound_(bound), looked_(now), peers_(static_cast<std::size_t>(size)) {
  for (Rank r = 0; r < size_; ++r) {
    peer(r).heard = peer(r).told = now;
    peer(r).row = {r, 0, std::vector<Hearing>(static_cast<std::size_t>(size), Hearing::heard)};
  }
}

void Detector::heard(Rank from, Time now) {
  peer(from).heard = now;
  peer(from).ever = true;
}

bool Detector::told(const Row& row, Time now) {
  if (row.of < 0 || row.of >= size_ || row.of == rank_ || row.hearing.size() != peers_.size()) return false;
  Peer& one = peer(row.of);
  if (row.version <= one.row.version) return false;
  const bool news = one.row.hearing != row.hearing;
  one.row = row;
  one.told = now;
  if (counts(row.of) && row.hearing[static_cast<std::size_t>(rank_)] == Hearing::excluded &&
      exclusion_.empty())
    exclusion_ = fmt::format("rank {} was evicted: rank {} says that the job goes on with ranks {}", rank_,
                             row.of, list([&](Rank r) {
                               const Hearing seen = row.hearing[static_cast<std::size_t>(r)];
                               return r != rank_ && seen != Hearing::excluded && seen != Hearing::left;
                             }));
  return news;
}

void Detector::closed(Rank which, Time now) {
  if (peer(which).closed) return;
  peer(which).closed = true;
  if (mine(which) == Hearing::heard) peer(which).missing = now;
}

void Detector::left(Rank which) {
  if (mine(which) != Hearing::excluded) mine(which) = Hearing::left;
  peer(which).out = true;
}

void Detector::exclude(Rank which) {
  mine(which) = Hearing::excluded;
  peer(which).out = true;
}

void Detector::cut(Rank which) {
  peer(which).cut = true;
}

// Those that this rank reaches, directly or through others.
std::vector<bool> Detector::group() const {
  std::vector<bool> found(peers_.size());
  found[static_cast<std::size_t>(rank_)] = true;
  for (std::deque<Rank> next = {rank_}; !next.empty(); next.pop_front())
    for (Rank r = 0; r < size_; ++r)
      if (!found[static_cast<std::size_t>(r)] && !peer(r).out && linked(next.front(), r)) {
        found[static_cast<std::size_t>(r)] = true;
        next.push_back(r);
      }
  return found;
}

bool Detector::goes_on(const std::vector<bool>& group) const {
  int members = 0;
  int here = 0;
  Rank lowest = -1;
  for (Rank r = 0; r < size_; ++r) {
    if (peer(r).out) continue;
    if (lowest < 0) lowest = r;
    ++members;
    here += group[static_cast<std::size_t>(r)] ? 1 : 0;
  }
  return 2 * here > members || (2 * here == members && group[static_cast<std::size_t>(lowest)]);
}

// Everybody of this group has seen its connection end. Who has been asked and says nothing abstains after a
// while: it may be stopped.
bool Detector::crashed(Rank which, const std::vector<bool>& group) const {
  const bool waited = looked_ - peer(which).missing > 7 * beat();
  for (Rank r = 0; r < size_; ++r) {
    if (r == which || r == rank_ || !group[static_cast<std::size_t>(r)]) continue;
    const Hearing one = says(r, which);
    if (one == Hearing::closed || one == Hearing::excluded || one == Hearing::left) continue;
    if (!waited || fresh(r)) return false;
  }
  return true;
}

// Where nobody can ask the kernel, silence of one who has spoken is all there is to go by.
bool Detector::unreachable(Rank which, const std::function<Contact(Rank)>& contact) const {
  const Contact known = contact(which);
  return known == Contact::unanswered || (known == Contact::unknown && peer(which).ever);
}

void Detector::die(Rank which, bool crashed, Verdict& verdict) {
  peer(which).out = peer(which).out || crashed;
  mine(which) = Hearing::excluded;
  verdict.dead.push_back(which);
  verdict.news = true;
}

void Detector::look_at_connections(const std::function<Contact(Rank)>& contact, Verdict& verdict) {
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !counts(r)) continue;
    Peer& one = peer(r);
    Hearing hearing = Hearing::heard;
    if (one.closed)
      hearing = Hearing::closed;
    else if (one.cut || (looked_ - one.heard > 16 * beat() && unreachable(r, contact)))
      hearing = Hearing::silent;
    if (hearing == mine(r)) continue;
    if (mine(r) == Hearing::heard) one.missing = looked_;
    mine(r) = hearing;
    verdict.news = true;
  }
}

Detector::Verdict Detector::look(Time now, const std::function<Contact(Rank)>& contact) {
  Verdict verdict;
  // A rank that was stopped itself has heard nobody meanwhile.
  if (now - looked_ > 4 * beat())
    for (Peer& one : peers_)
      for (Time* time : {&one.heard, &one.told, &one.missing, &one.apart})
        if (*time != Time()) *time += now - looked_;
  looked_ = now;
  if (!exclusion_.empty()) return verdict;
  look_at_connections(contact, verdict);
  std::vector<bool> mates = group();
  for (Rank r = 0; r < size_; ++r)
    if (r != rank_ && counts(r) && mine(r) == Hearing::closed && crashed(r, mates)) die(r, true, verdict);
  mates = group();
  if (goes_on(mates))
    lonely_ = {};
  else if (lonely_ == Time())
    lonely_ = now;
  else
    end(mates);
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !counts(r)) continue;
    Peer& one = peer(r);
    const bool mate = mates[static_cast<std::size_t>(r)];
    if (mate || lonely_ != Time())
      one.apart = {};
    else if (one.apart == Time())
      one.apart = now;
    else if (now - one.apart > 3 * beat() && (mine(r) == Hearing::silent || now - one.missing > bound_))
      die(r, false, verdict);
    if (mate && mine(r) != Hearing::heard && !one.cut && now - one.missing > 2 * beat() && next_to(r) >= 0)
      verdict.broken.push_back(r);
  }
  return verdict;
}

void Detector::end(const std::vector<bool>& group) {
  // Others may be about to see the same, and it may still turn out that many have crashed.
  const auto& row = peer(rank_).row.hearing;
  const bool undecided = std::find(row.begin(), row.end(), Hearing::closed) != row.end();
  if (looked_ - lonely_ < (undecided ? 10 : 4) * beat()) return;
  const auto in = [&](Rank r) -> bool { return group[static_cast<std::size_t>(r)]; };
  exclusion_ = fmt::format(
      "rank {} is cut off: for {:.1f} s it has heard nothing from rank(s) {}; those that it reaches, {}, are "
      "no "
      "majority of ranks {}, and the others may go on without it",
      rank_, std::chrono::duration<double>(bound_).count(),
      list([&](Rank r) { return !peer(r).out && !in(r); }), list(in),
      list([&](Rank r) { return !peer(r).out; }));
}

std::vector<Row> Detector::rows() {
  Row& own = peer(rank_).row;
  ++own.version;
  std::vector<Row> all = {own};
  const bool fine = std::all_of(peers_.begin(), peers_.end(), [](const Peer& one) {
    return std::all_of(one.row.hearing.begin(), one.row.hearing.end(),
                       [](Hearing seen) { return seen == Hearing::heard || seen == Hearing::left; });
  });
  for (Rank r = 0; !fine && r < size_; ++r)
    if (r != rank_ && !peer(r).out) all.push_back(peer(r).row);
  return all;
}

// Who does not answer passes nothing on.
Rank Detector::next_to(Rank which) const {
  std::vector<Rank> first(peers_.size(), -1);
  std::deque<Rank> next;
  for (Rank r = 0; r < size_; ++r)
    if (r != rank_ && r != which && linked(rank_, r) && fresh(r)) {
      first[static_cast<std::size_t>(r)] = r;
      next.push_back(r);
    }
  for (; !next.empty(); next.pop_front())
    for (Rank r = 0; r < size_; ++r) {
      if (r == rank_ || first[static_cast<std::size_t>(r)] >= 0 || !linked(next.front(), r)) continue;
      first[static_cast<std::size_t>(r)] = first[static_cast<std::size_t>(next.front())];
      if (r == which) return first[static_cast<std::size_t>(r)];
      if (fresh(r)) next.push_back(r);
    }
  return -1;
}

std::string Detector::list(const std::function<bool(Rank)>& which) const {
  std::string text;
  for (Rank r = 0; r < size_; ++r)
    if (which(r)) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text.empty() ? "nobody" : text;
}

}  // namespace starling::network

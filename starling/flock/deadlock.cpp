#include "starling/flock/deadlock.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "starling/flock/errors.h"

namespace starling::flock {
namespace {

constexpr std::uint64_t kDeadlock = 0x6379636C65;

struct Link {
  Rank rank;
  WaitStatus waiting;
};

std::string wait_text(const WaitStatus& waiting) {
  return fmt::format("waits for rank {} in {}", waiting.peer, waiting.text.data());
}

// The cycle at the end of the chain of waits that starts at `first`; empty if there is none.
std::vector<Link> find_cycle(Board& board, Link first) {
  std::vector<Link> chain = {first};
  for (;;) {
    const auto next = static_cast<Rank>(chain.back().waiting.peer);
    const auto known =
        std::find_if(chain.begin(), chain.end(), [&](const Link& link) { return link.rank == next; });
    if (known != chain.end()) return {known, chain.end()};
    const WaitStatus waiting = board.waiting(next);
    if (waiting.peer < 0 || waiting.since == 0) return {};
    chain.push_back({next, waiting});
  }
}

std::uint64_t hash_of(const std::vector<Link>& cycle) {
  std::uint64_t key = kDeadlock;
  for (const Link& link : cycle)
    key = register_key(key, static_cast<std::uint64_t>(link.rank), link.waiting.since, link.waiting.sequence);
  return key;
}

std::string text_of(const std::vector<Link>& cycle) {
  std::string text;
  for (const Link& link : cycle)
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", link.rank, wait_text(link.waiting));
  return "these ranks wait for each other in a cycle: " + text +
         "; call each of these operations on every rank that takes part, in the same order";
}

}  // namespace

std::string what_it_does(FlockState& flock, Rank rank) {
  const LastPost posted = flock.fabric->board().posted(rank);
  const WaitStatus waiting = flock.fabric->board().waiting(rank);
  const std::string last = posted.name == 0
                               ? "has posted nothing yet"
                               : "last posted " + flock.mailbox.text_of(posted.name) +
                                     (posted.step > 0 ? fmt::format(", step {}", posted.step) : "");
  return fmt::format("Rank {} {} and {}.", rank, last,
                     waiting.peer < 0 ? "is not waiting" : wait_text(waiting));
}

void raise_known_deadlock(FlockState& flock, Deadline since) {
  if (flock.runtime->many_threads) return;
  const Suspicion& suspicion = flock.runtime->suspicion;
  if (suspicion.since == static_cast<std::uint64_t>(since.time_since_epoch().count()) &&
      suspicion.cycle != 0 && flock.fabric->board().agreed(suspicion.cycle))
    throw Deadlock(suspicion.text);
}

void look_for_deadlock(FlockState& flock, const Expectation& expected, const std::string& operation,
                       Deadline since, bool forever) {
  Board& board = flock.fabric->board();
  Suspicion& suspicion = flock.runtime->suspicion;
  WaitStatus mine;
  mine.peer = expected.source;
  mine.name = expected.name;
  mine.sequence = expected.sequence;
  mine.step = expected.step;
  operation.copy(mine.text.data(), mine.text.size() - 1);
  flock.runtime->told_others = true;
  // Messages of a later phase are sent without a call of the source, and another thread may send the missing
  // message.
  if (expected.later_phase || flock.runtime->many_threads || !forever) {
    board.publish(mine);
    return;
  }
  mine.since = static_cast<std::uint64_t>(since.time_since_epoch().count());
  if (suspicion.since != mine.since) suspicion = {};
  raise_known_deadlock(flock, since);
  mine.confirmed = suspicion.confirmed;
  board.publish(mine);
  auto cycle = find_cycle(board, {flock.self(), mine});
  if (cycle.empty()) return;
  // All ranks start the cycle with its lowest rank.
  std::rotate(cycle.begin(),
              std::min_element(cycle.begin(), cycle.end(),
                               [](const Link& a, const Link& b) { return a.rank < b.rank; }),
              cycle.end());
  const std::uint64_t key = hash_of(cycle);
  const auto me =
      std::find_if(cycle.begin(), cycle.end(), [&](const Link& link) { return link.rank == flock.self(); });
  if (me == cycle.end()) return;  // the ranks in the cycle will end it
  suspicion.since = mine.since;
  suspicion.cycle = key;
  suspicion.text = text_of(cycle);
  const Link& before = me == cycle.begin() ? cycle.back() : *(me - 1);
  if (flock.mailbox.sent(before.waiting.name, before.rank, before.waiting.sequence)) return;
  suspicion.confirmed = key;
  mine.confirmed = key;
  board.publish(mine);
  const bool all = std::all_of(cycle.begin(), cycle.end(), [&](const Link& link) {
    return link.rank == flock.self() || link.waiting.confirmed == key;
  });
  if (!all) return;
  board.agree(key, 1);
  throw Deadlock(suspicion.text);
}

WaitNote::~WaitNote() {
  if (kept_ || !flock_.runtime->told_others.exchange(false)) return;
  flock_.fabric->board().publish({});
}

}  // namespace starling::flock

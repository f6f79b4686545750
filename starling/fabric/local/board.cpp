#include "starling/fabric/local/board.h"

#include <array>
#include <bit>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::local {
namespace {

using Words = std::array<std::uint64_t, sizeof(Waiting) / 8>;
static_assert(sizeof(Words) == sizeof(Waiting));

void announce_elsewhere(Control& own, std::int64_t step_plus_one) {
  if (own.announced_elsewhere.load(std::memory_order_relaxed) < step_plus_one)
    own.announced_elsewhere.store(step_plus_one, std::memory_order_seq_cst);
}

}  // namespace

Register* LocalBoard::registers() const {
  return regions_.front()->as<Register>(registers_offset(static_cast<Rank>(regions_.size())));
}

Register& LocalBoard::find(std::uint64_t key) const {
  Register* table = registers();
  for (std::size_t probe = 0; probe < kRegisters; ++probe) {
    Register& place = table[(key + probe) % kRegisters];
    const std::uint64_t there = place.key.load(std::memory_order_seq_cst);
    if (there == key || there == 0) return place;
  }
  throw Error("the table of agreements is full: too many deaths and collectives between them");
}

std::int64_t LocalBoard::agree(std::uint64_t key, std::int64_t proposal) {
  key |= 1;  // 0 means free
  for (;;) {
    Register& place = find(key);
    std::uint64_t expected = 0;
    if (!place.key.compare_exchange_strong(expected, key, std::memory_order_seq_cst) && expected != key)
      continue;  // another key was faster
    // Whoever took the place may have been killed before it wrote the value: anybody may.
    std::int64_t none = 0;
    const bool first = place.value.compare_exchange_strong(none, proposal + 1, std::memory_order_seq_cst);
    if (!first && none < 0) refuse_memory_of(0, fmt::format("an agreement on {}", none));
    return first ? proposal : none - 1;
  }
}

std::optional<std::int64_t> LocalBoard::agreed(std::uint64_t key) const {
  key |= 1;
  const Register& place = find(key);
  if (place.key.load(std::memory_order_seq_cst) != key) return std::nullopt;
  const std::int64_t value = place.value.load(std::memory_order_seq_cst);
  if (value == 0) return std::nullopt;
  if (value < 0) refuse_memory_of(0, fmt::format("an agreement on {}", value));
  return value - 1;
}

// Other members may still look for what a retired flock's rank had announced: before its place is given away,
// its step is counted among those of flocks that have none.
Announcement* LocalBoard::place_of(std::uint64_t flock) {
  if (const auto found = places_.find(flock); found != places_.end())
    return &control(rank_).announced[found->second];
  std::size_t place = places_.size() + 1;
  if (place >= kAnnouncements) {
    if (retired_.empty()) return nullptr;
    const auto oldest = places_.find(retired_.front());
    retired_.pop_front();
    place = oldest->second;
    places_.erase(oldest);
    Announcement& given = control(rank_).announced[place];
    announce_elsewhere(control(rank_), given.step.load(std::memory_order_relaxed));
    given.flock.store(0, std::memory_order_seq_cst);
    given.step.store(0, std::memory_order_seq_cst);
  }
  places_[flock] = place;
  return &control(rank_).announced[place];
}

void LocalBoard::announce(std::uint64_t flock, Step step) {
  if (flock == 0) {
    control(rank_).announced[0].step.store(step + 1, std::memory_order_seq_cst);
    return;
  }
  const std::lock_guard lock(announce_mutex_);
  Announcement* place = place_of(flock);
  if (place == nullptr) return announce_elsewhere(control(rank_), step + 1);
  place->step.store(step + 1, std::memory_order_seq_cst);
  place->flock.store(flock, std::memory_order_seq_cst);
}

std::optional<Step> LocalBoard::announced(Rank rank, std::uint64_t flock) const {
  const Control& theirs = control(rank);
  for (std::size_t place = flock == 0 ? 0 : 1; place < kAnnouncements; ++place) {
    const Announcement& one = theirs.announced[place];
    if (one.flock.load(std::memory_order_seq_cst) != flock) continue;
    const Step step = one.step.load(std::memory_order_seq_cst);
    // Given away meanwhile? Then it counts among the others.
    if (one.flock.load(std::memory_order_seq_cst) == flock) return step - 1;
    break;
  }
  return theirs.announced_elsewhere.load(std::memory_order_seq_cst) - 1;
}

void LocalBoard::retire(std::uint64_t flock) {
  const std::lock_guard lock(announce_mutex_);
  if (places_.contains(flock)) retired_.push_back(flock);
}

void LocalBoard::publish(const Waiting& waiting) {
  const std::lock_guard lock(publish_mutex_);
  Control& own = control(rank_);
  const std::uint64_t version = own.waiting_version.load(std::memory_order_relaxed);
  own.waiting_version.store(version + 1, std::memory_order_seq_cst);
  const auto words = std::bit_cast<Words>(waiting);
  for (std::size_t i = 0; i < words.size(); ++i) own.waiting[i].store(words[i], std::memory_order_seq_cst);
  own.waiting_version.store(version + 2, std::memory_order_seq_cst);
}

Waiting LocalBoard::waiting(Rank rank) const {
  const Control& theirs = control(rank);
  // A rank that was killed or stopped while writing leaves an odd version for good: then it waits for nobody.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = theirs.waiting_version.load(std::memory_order_seq_cst);
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = theirs.waiting[i].load(std::memory_order_seq_cst);
    if (before == 0) break;
    if (before % 2 == 1 || theirs.waiting_version.load(std::memory_order_seq_cst) != before) continue;
    auto waiting = std::bit_cast<Waiting>(words);
    waiting.text.back() = 0;
    if (waiting.peer < -1 || waiting.peer >= static_cast<std::int64_t>(regions_.size()))
      refuse_memory_of(rank, fmt::format("it waits for a rank {}", waiting.peer));
    return waiting;
  }
  return {};
}

Posted LocalBoard::posted(Rank rank) const {
  const Control& theirs = control(rank);
  return {theirs.posted_name.load(std::memory_order_relaxed),
          theirs.posted_step.load(std::memory_order_relaxed)};
}

}  // namespace starling::local

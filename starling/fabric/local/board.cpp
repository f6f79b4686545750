#include "starling/fabric/local/board.h"

#include <array>
#include <bit>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::fabric::local {
namespace {

using Words = std::array<std::uint64_t, sizeof(WaitStatus) / 8>;
static_assert(sizeof(Words) == sizeof(WaitStatus));

void announce_without_slot(Control& own, std::int64_t step_plus_one) {
  if (own.highest_without_slot.load(std::memory_order_relaxed) < step_plus_one)
    own.highest_without_slot.store(step_plus_one, std::memory_order_seq_cst);
}

}  // namespace

AgreementSlot* LocalBoard::agreement_slots() const {
  return regions_.front()->as<AgreementSlot>(agreement_slots_offset(static_cast<Rank>(regions_.size())));
}

AgreementSlot& LocalBoard::find(std::uint64_t key) const {
  AgreementSlot* table = agreement_slots();
  for (std::size_t probe = 0; probe < kAgreementSlots; ++probe) {
    AgreementSlot& slot = table[(key + probe) % kAgreementSlots];
    const std::uint64_t found = slot.key.load(std::memory_order_seq_cst);
    if (found == key || found == 0) return slot;
  }
  throw Error(
      "the table of agreements is full: this job has had too many failures with collectives between them; "
      "restart it");
}

std::int64_t LocalBoard::agree(std::uint64_t key, std::int64_t proposal) {
  key |= 1;  // 0 means free
  for (;;) {
    AgreementSlot& slot = find(key);
    std::uint64_t expected = 0;
    if (!slot.key.compare_exchange_strong(expected, key, std::memory_order_seq_cst) && expected != key)
      continue;  // another key took this slot first
    // The rank that took the slot may have been killed before it wrote the value, so any rank may write it.
    std::int64_t none = 0;
    const bool first = slot.value.compare_exchange_strong(none, proposal + 1, std::memory_order_seq_cst);
    if (!first && none < 0) refuse_memory_of(0, fmt::format("an agreement has the value {}", none));
    return first ? proposal : none - 1;
  }
}

std::optional<std::int64_t> LocalBoard::agreed(std::uint64_t key) const {
  key |= 1;
  const AgreementSlot& slot = find(key);
  if (slot.key.load(std::memory_order_seq_cst) != key) return std::nullopt;
  const std::int64_t value = slot.value.load(std::memory_order_seq_cst);
  if (value == 0) return std::nullopt;
  if (value < 0) refuse_memory_of(0, fmt::format("an agreement has the value {}", value));
  return value - 1;
}

// Other ranks may still look up the last step of a retired flock: before its slot is reused, its step is
// added to the maximum over the flocks without a slot.
Announcement* LocalBoard::announcement_slot(std::uint64_t flock) {
  if (const auto found = slots_.find(flock); found != slots_.end())
    return &control(rank_).announced[found->second];
  std::size_t slot = slots_.size() + 1;
  if (slot >= kAnnouncements) {
    if (retired_.empty()) return nullptr;
    const auto oldest = slots_.find(retired_.front());
    retired_.pop_front();
    slot = oldest->second;
    slots_.erase(oldest);
    Announcement& reused = control(rank_).announced[slot];
    announce_without_slot(control(rank_), reused.step.load(std::memory_order_relaxed));
    reused.flock.store(0, std::memory_order_seq_cst);
    reused.step.store(0, std::memory_order_seq_cst);
  }
  slots_[flock] = slot;
  return &control(rank_).announced[slot];
}

void LocalBoard::announce(std::uint64_t flock, Step step) {
  if (flock == 0) {
    control(rank_).announced[0].step.store(step + 1, std::memory_order_seq_cst);
    return;
  }
  const std::lock_guard lock(announce_mutex_);
  Announcement* slot = announcement_slot(flock);
  if (slot == nullptr) return announce_without_slot(control(rank_), step + 1);
  slot->step.store(step + 1, std::memory_order_seq_cst);
  slot->flock.store(flock, std::memory_order_seq_cst);
}

std::optional<Step> LocalBoard::announced(Rank rank, std::uint64_t flock) const {
  const Control& theirs = control(rank);
  for (std::size_t slot = flock == 0 ? 0 : 1; slot < kAnnouncements; ++slot) {
    const Announcement& one = theirs.announced[slot];
    if (one.flock.load(std::memory_order_seq_cst) != flock) continue;
    const Step step = one.step.load(std::memory_order_seq_cst);
    // If the slot was reused meanwhile, the step is in the maximum over the others.
    if (one.flock.load(std::memory_order_seq_cst) == flock) return step - 1;
    break;
  }
  return theirs.highest_without_slot.load(std::memory_order_seq_cst) - 1;
}

void LocalBoard::retire(std::uint64_t flock) {
  const std::lock_guard lock(announce_mutex_);
  if (slots_.contains(flock)) retired_.push_back(flock);
}

void LocalBoard::publish(const WaitStatus& waiting) {
  const std::lock_guard lock(publish_mutex_);
  Control& own = control(rank_);
  const std::uint64_t version = own.waiting_version.load(std::memory_order_relaxed);
  own.waiting_version.store(version + 1, std::memory_order_seq_cst);
  const auto words = std::bit_cast<Words>(waiting);
  for (std::size_t i = 0; i < words.size(); ++i) own.waiting[i].store(words[i], std::memory_order_seq_cst);
  own.waiting_version.store(version + 2, std::memory_order_seq_cst);
}

WaitStatus LocalBoard::waiting(Rank rank) const {
  const Control& theirs = control(rank);
  // A seqlock. A rank that was killed or stopped while writing leaves an odd version: report "not waiting"
  // then.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = theirs.waiting_version.load(std::memory_order_seq_cst);
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = theirs.waiting[i].load(std::memory_order_seq_cst);
    if (before == 0) break;
    if (before % 2 == 1 || theirs.waiting_version.load(std::memory_order_seq_cst) != before) continue;
    auto waiting = std::bit_cast<WaitStatus>(words);
    waiting.text.back() = 0;
    if (waiting.peer < -1 || waiting.peer >= static_cast<std::int64_t>(regions_.size()))
      refuse_memory_of(rank, fmt::format("it waits for rank {}, which does not exist", waiting.peer));
    return waiting;
  }
  return {};
}

LastPost LocalBoard::posted(Rank rank) const {
  const Control& theirs = control(rank);
  return {theirs.posted_name.load(std::memory_order_relaxed),
          theirs.posted_step.load(std::memory_order_relaxed)};
}

}  // namespace starling::fabric::local

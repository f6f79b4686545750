#include "starling/fabric/local/board.h"

#include <array>
#include <bit>

#include "starling/base/error.h"

namespace starling::local {
namespace {

using Words = std::array<std::uint64_t, sizeof(Waiting) / 8>;
static_assert(sizeof(Words) == sizeof(Waiting));

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
    return first ? proposal : none - 1;
  }
}

std::optional<std::int64_t> LocalBoard::agreed(std::uint64_t key) const {
  key |= 1;
  const Register& place = find(key);
  if (place.key.load(std::memory_order_seq_cst) != key) return std::nullopt;
  const std::int64_t value = place.value.load(std::memory_order_seq_cst);
  if (value == 0) return std::nullopt;
  return value - 1;
}

void LocalBoard::announce(Step step, std::uint32_t line) {
  control(rank_).announced[line].store(step + 1, std::memory_order_seq_cst);
}

Step LocalBoard::announced(Rank rank, std::uint32_t line) const {
  return control(rank).announced[line].load(std::memory_order_seq_cst) - 1;
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
    return std::bit_cast<Waiting>(words);
  }
  return {};
}

Posted LocalBoard::posted(Rank rank) const {
  const Control& theirs = control(rank);
  return {theirs.posted_name.load(std::memory_order_relaxed),
          theirs.posted_step.load(std::memory_order_relaxed)};
}

}  // namespace starling::local

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/kind.h"
#include "starling/record/ticks.h"

namespace starling {

/// The last operations of one rank, kept in memory whatever happens, so that an error can say what came
/// before it. Always on: a few stores per operation. Thread-safe.
class Flight {
 public:
  static constexpr std::size_t kKept = 256;
  static constexpr std::size_t kPeers = 6;
  enum class State : std::uint32_t { started, ended, failed };

  explicit Flight(Rank rank) : rank_(rank) {}

  /// An operation begins; `name` must live as long as this. Returns its number.
  std::uint64_t begin(const std::string& name, RecordKind kind, Step step);
  /// The index-th rank it hears.
  void peer(std::uint64_t number, std::uint32_t index, Rank rank);
  void end(std::uint64_t number, bool failed);

  /// The newest operations in words, newest last.
  std::vector<std::string> lines(std::size_t most = kKept) const;

  /// Something went wrong: appends all lines to STARLING_FLIGHT/flight-<rank>.txt, or logs the last few. At
  /// most once a second, for programs that live with errors.
  void dump(const std::string& why);

 private:
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> number{0};  // 1 + the operation's
    std::atomic<const std::string*> name{nullptr};
    std::atomic<std::uint64_t> start{0};  // coarse ns
    std::atomic<Step> step{0};
    std::atomic<State> state{State::started};
    std::atomic<std::uint32_t> peer_count{0};
    std::atomic<RecordKind> kind{RecordKind::receive};
    std::array<std::atomic<std::uint16_t>, kPeers> peers{};
  };

  Entry& entry(std::uint64_t number) { return entries_[number % kKept]; }

  Rank rank_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> dumped_{0};  // when, ns
  std::array<Entry, kKept> entries_;
};

// Inline, since every operation pays for them.

inline std::uint64_t Flight::begin(const std::string& name, RecordKind kind, Step step) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const std::uint64_t number = next_.fetch_add(1, relaxed);
  Entry& entry = this->entry(number);
  entry.number.store(0, relaxed);
  entry.name.store(&name, relaxed);
  entry.start.store(coarse_ns(), relaxed);
  entry.step.store(step, relaxed);
  entry.kind.store(kind, relaxed);
  entry.state.store(State::started, relaxed);
  entry.peer_count.store(0, relaxed);
  entry.number.store(number + 1, std::memory_order_release);
  return number;
}

inline void Flight::peer(std::uint64_t number, std::uint32_t index, Rank rank) {
  constexpr auto relaxed = std::memory_order_relaxed;
  Entry& entry = this->entry(number);
  if (entry.number.load(relaxed) != number + 1) return;  // overwritten: it has taken very long
  if (index < kPeers) entry.peers[index].store(static_cast<std::uint16_t>(std::min(rank, 65'535)), relaxed);
  entry.peer_count.store(index + 1, relaxed);
}

inline void Flight::end(std::uint64_t number, bool failed) {
  Entry& entry = this->entry(number);
  if (entry.number.load(std::memory_order_relaxed) == number + 1)
    entry.state.store(failed ? State::failed : State::ended, std::memory_order_relaxed);
}

}  // namespace starling

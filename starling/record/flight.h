#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/kind.h"
#include "starling/record/ticks.h"

namespace starling::record {

/// A flight recorder: the last operations of one rank, in a ring buffer in memory, so that an error report
/// can list what happened before. Always on; costs a few stores per operation. Thread-safe.
class Flight {
 public:
  static constexpr std::size_t kKept = 256;
  static constexpr std::size_t kPeers = 6;
  static constexpr Step kNoStep = -1;
  enum class State : std::uint32_t { started, ended, failed };

  using Now = std::uint64_t (*)();  // nanoseconds
  /// Tests pass a clock of their own; it times dumps only.
  explicit Flight(Rank rank, Now now = &steady_ns) : rank_(rank), now_(now) {}

  /// Returns what users call an internal name: the call that they made.
  using Describe = std::function<std::string(const std::string& name)>;

  /// Records the begin of an operation and returns its number; `name` must outlive this object.
  std::uint64_t begin(const std::string& name, RecordKind kind, Step step);
  /// Records the index-th rank from which the operation receives.
  void peer(std::uint64_t number, std::uint32_t index, Rank rank);
  void end(std::uint64_t number, bool failed);

  /// Describes the newest operations, newest last.
  std::vector<std::string> lines(std::size_t most = kKept, const Describe& describe = {}) const;

  /// After an error: appends all lines to STARLING_FLIGHT/flight-<rank>.txt, or logs the last few. At most
  /// once a second, because some programs handle errors and continue.
  void dump(const std::string& why, const Describe& describe = {});

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> number{0};  // 1 + the operation's number
    std::atomic<const std::string*> name{nullptr};
    std::atomic<std::uint64_t> start{0};  // coarse ns
    std::atomic<Step> step{0};
    std::atomic<State> state{State::started};
    std::atomic<std::uint32_t> peer_count{0};
    std::atomic<RecordKind> kind{RecordKind::receive};
    std::array<std::atomic<std::uint16_t>, kPeers> peers{};
  };

  Slot& slot(std::uint64_t number) { return slots_[number % kKept]; }

  Rank rank_;
  Now now_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> dumped_{0};  // time in ns
  std::array<Slot, kKept> slots_;
};

// Inline, because they run in every operation.

inline std::uint64_t Flight::begin(const std::string& name, RecordKind kind, Step step) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const std::uint64_t number = next_.fetch_add(1, relaxed);
  Slot& slot = this->slot(number);
  slot.number.store(0, relaxed);
  slot.name.store(&name, relaxed);
  slot.start.store(coarse_ns(), relaxed);
  slot.step.store(step, relaxed);
  slot.kind.store(kind, relaxed);
  slot.state.store(State::started, relaxed);
  slot.peer_count.store(0, relaxed);
  slot.number.store(number + 1, std::memory_order_release);
  return number;
}

inline void Flight::peer(std::uint64_t number, std::uint32_t index, Rank rank) {
  constexpr auto relaxed = std::memory_order_relaxed;
  Slot& slot = this->slot(number);
  if (slot.number.load(relaxed) != number + 1) return;  // overwritten by newer operations
  if (index < kPeers) slot.peers[index].store(static_cast<std::uint16_t>(std::min(rank, 65'535)), relaxed);
  slot.peer_count.store(index + 1, relaxed);
}

inline void Flight::end(std::uint64_t number, bool failed) {
  Slot& slot = this->slot(number);
  if (slot.number.load(std::memory_order_relaxed) == number + 1)
    slot.state.store(failed ? State::failed : State::ended, std::memory_order_relaxed);
}

}  // namespace starling::record

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "starling/flock/block.h"
#include "starling/flock/name.h"
#include "starling/flock/pending.h"
#include "starling/topology/schedule.h"

namespace starling::flock {

/// What replaces blocks that have not arrived yet, or were dropped, in the average of a relay.
enum class Missing {
  counts,     // nothing: divides by the number of blocks that arrived
  reference,  // set_reference()'s block, or this rank's first; not if messages may be dropped
  own,        // this rank's own block of this step
  zero,       // zeros: the sum of the blocks that arrived, divided by the number of ranks
};

struct RelayOptions {
  Missing missing = Missing::counts;
  /// A message that has not arrived after this time is dropped and contributes no block. A message is also
  /// dropped when a later one has arrived.
  std::chrono::nanoseconds patience = std::chrono::nanoseconds::max();
  /// How a schedule of several trees divides the block: elements in turn (a layer's elements then go over all
  /// trees), or contiguous parts. Every rank must choose the same.
  bool contiguous = false;
  /// Uses the messages of a step in the next one, so that they overlap with the computation between them;
  /// rank j's block is then `hops` steps old.
  bool overlap = false;
};

/// Throws InvalidArgument unless the schedule is a tree, or a few trees in turn.
void check_relay_trees(const Schedule& schedule);

/// RelaySum: in every step each rank sends to each neighbor on a tree the mean of its own block and of its
/// other neighbors' last messages. So every rank gets the mean of all blocks; rank j's is max(0, hops - 1)
/// steps old. A handle; copies share everything. One call at a time.
///
/// A schedule of several trees in turn (double-binary-trees) gives each tree an equal part of the block: the
/// even and the odd elements, unless RelayOptions asks for contiguous parts.
///
///   auto relay = flock.relay("chain");
///   relay.average(x);   // x <- the average of all ranks' latest known blocks
class Relay {
 public:
  struct State;

  /// The state of a relay between two steps, for checkpoints: the messages that the next step passes on.
  struct Memory {
    struct Message {
      std::size_t tree = 0;
      Rank neighbor = 0;
      std::uint64_t blocks = 0;  // in the mean
      std::vector<std::byte> sum;
    };
    std::vector<Message> messages;
    std::vector<std::byte> reference;
    bool filled = false;  // every rank has contributed once: the reference is no longer needed
  };
  /// With overlap, waits for messages in flight; every rank must call it between the same steps.
  Memory memory();
  void remember(const Memory& memory);

  explicit Relay(std::shared_ptr<State> state) : state_(std::move(state)) {}

  template <WritableRange T>
  T average(T&& x) {
    const Buffer buffer = buffer_of(x);
    start({buffer, buffer, 0}).wait();
    return std::forward<T>(x);
  }
  /// The input must not change until the next call.
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending average_nonblocking(const In& in, Out&& out) {
    return start(piece_between(const_buffer_of(in), buffer_of(out)));
  }
  /// The block that Missing::reference uses until every rank has contributed once, or a rank dies; copied.
  void set_reference(ConstBuffer block);
  /// The number of blocks in the last result.
  std::int64_t contributors() const;

  Pending start(const Piece& block);

 private:
  Piece piece_between(ConstBuffer in, Buffer out) const;

  std::shared_ptr<State> state_;
};

}  // namespace starling::flock

namespace starling {
using flock::Missing;
using flock::Relay;
using flock::RelayOptions;
}  // namespace starling

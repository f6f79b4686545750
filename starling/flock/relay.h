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

/// What stands in for blocks that have not arrived yet, or were dropped, in the average of a relay.
enum class Missing {
  counts,     // nothing: divide by what is there
  reference,  // set_reference()'s block, or this rank's first; not where messages may be dropped
  own,        // this rank's own block of this step
  zero,       // zeros: the sum of what is there, divided by the number of ranks
};

struct RelayOptions {
  Missing missing = Missing::counts;
  /// A message that has not come by then is dropped; it counts as zero, with count 0. A message that a later
  /// one has overtaken is dropped anyway.
  std::chrono::nanoseconds patience = std::chrono::nanoseconds::max();
  /// How a schedule of several trees divides the block: every second element to each of two (a layer's
  /// elements then travel over both), or halves in one piece. Every rank must choose the same.
  bool contiguous = false;
  /// What was sent in a step is used in the next, and so travels during the computation between them; rank
  /// j's block is then seen as it was `hops` steps ago.
  bool overlap = false;
};

/// Throws InvalidArgument, saying why, for a schedule that is not a tree, or a few in turn.
void check_relay_trees(const Schedule& schedule);

/// RelaySum: every step each rank tells its neighbours on a tree the mean of its own block and of what its
/// other neighbours told it a step before, so that everybody sees the mean of all blocks, of rank j as it was
/// max(0, hops - 1) steps ago. A handle; copies share everything. One call at a time.
///
/// A schedule of several trees in turn (double-binary-trees) gives each an equal part of the block: the even
/// and the odd elements, unless RelayOptions asks for contiguous parts.
///
///     auto relay = flock.relay("chain");
///     relay.average(x);   // x <- the average of everybody's latest known block
class Relay {
 public:
  struct State;

  /// What a relay remembers between two steps, to be saved: the messages that the next step passes on.
  struct Memory {
    struct Message {
      std::size_t tree = 0;
      Rank neighbor = 0;
      std::uint64_t blocks = 0;  // in the mean
      std::vector<std::byte> sum;
    };
    std::vector<Message> messages;
    std::vector<std::byte> reference;
    bool filled = false;  // all ranks have been heard once: the reference is not needed any more
  };
  /// With overlap it waits for messages under way: every rank calls it between the same steps.
  Memory memory();
  void remember(Memory memory);

  explicit Relay(std::shared_ptr<State> state) : state_(std::move(state)) {}

  template <WritableRange T>
  T average(T&& x) {
    const Buffer buffer = buffer_of(x);
    start({buffer, buffer, 0}).wait();
    return std::forward<T>(x);
  }
  /// The input must stay as it is until the next call.
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending average_nonblocking(const In& in, Out&& out) {
    return start(piece_between(const_buffer_of(in), buffer_of(out)));
  }
  /// The block that Missing::reference uses until all ranks have been heard once, or a rank dies; copied.
  void set_reference(ConstBuffer block);
  /// How many blocks were in the last result.
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

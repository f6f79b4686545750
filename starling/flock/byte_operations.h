#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/fabric/outgoing.h"
#include "starling/flock/block.h"
#include "starling/flock/flock_types.h"
#include "starling/flock/name.h"
#include "starling/flock/pending.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

class Flock;
class FlockState;
struct ScheduleCursor;
struct Topic;

/// A flock's operations on buffers of any type, without templates: for bindings of other languages and for
/// types known only at run time. Flock has the same operations for C++ ranges. All buffers of an operation
/// are in one kind of memory; on a device, the work on them has been enqueued when the operation has ended.
/// Every function starts an operation; buffers must live until its Pending has ended. Refers to the flock
/// that it was made from.
class ByteOperations {
 public:
  explicit ByteOperations(const Flock& flock) : flock_(flock) {}

  /// Whether ranks can exchange buffers in this kind of memory without copying them to the host.
  bool has_messages_in(MemoryKind memory) const;

  /// `memory` is the outgoing memory that contains the pieces, or empty.
  Pending neighbor_allreduce(Pieces pieces, Outgoing memory, Name name) const;
  Pending neighbor_allreduce(Pieces pieces, Outgoing memory, const Weighted& weights, Name name) const;
  Pending hierarchical_neighbor_allreduce(Pieces pieces, Name name) const;
  /// With the caller's weights; the ranks in them are machines.
  Pending hierarchical_neighbor_allreduce(Pieces pieces, const Weighted& machines, Name name) const;
  Pending pair_gossip(Pieces pieces, Rank peer, double self_weight, Name name) const;
  /// `complete`: ends when payloads have arrived, for callers that go on until then. Otherwise the device may
  /// wait for them.
  Pending allreduce(Pieces pieces, Reduction reduction, Name name, bool complete = false) const;
  Pending reduce_scatter(ConstBuffer in, Room room, Reduction reduction, Name name) const;
  Pending broadcast(Pieces pieces, Rank root, Name name) const;
  Pending allgather(ConstBuffer in, Room room, Name name) const;
  Pending neighbor_allgather(ConstBuffer in, Room room, Name name) const;
  /// Sends to and receives from ranks that the caller chooses; the result is in the order of `sources`.
  Pending neighbor_allgather(ConstBuffer in, Room room, const std::vector<Rank>& sources,
                             const std::vector<Rank>& destinations, Name name) const;
  Pending recv(Buffer buffer, Rank from, Name name) const;
  /// Copies the buffer; may wait if the receiver has too much unread, see Flock::set_send_limit().
  void send(ConstBuffer buffer, Rank to, Name name) const;

  /// Runs `pass`, which updates the block `name` on this thread's device, and records in a timeline when the
  /// device does what it enqueues.
  void record_update(const std::string& name, Step step, const std::function<void()>& pass) const;

 private:
  const std::shared_ptr<FlockState>& state() const;
  Pending scheduled(ScheduleCursor& cursor, Pieces pieces, Outgoing memory, const Name& name) const;
  Weighted inferred(Weighted weights, const Name& name) const;
  Weighted global(const Weighted& weights, const Name& name) const;
  void await_reader(const Topic& topic, Rank to) const;

  const Flock& flock_;
};

}  // namespace starling::flock

namespace starling {
using flock::ByteOperations;
}  // namespace starling

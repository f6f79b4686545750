#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "starling/fabric/faulty/faults.h"
#include "starling/flock/block.h"
#include "starling/flock/byte_operations.h"
#include "starling/flock/errors.h"
#include "starling/flock/flock_types.h"
#include "starling/flock/name.h"
#include "starling/flock/pending.h"
#include "starling/flock/relay.h"
#include "starling/flock/slot.h"
#include "starling/flock/window.h"
#include "starling/kernel/reduce.h"
#include "starling/topology/schedule.h"

namespace starling::fabric {
class Fabric;
}

namespace starling::flock {

class FlockState;

/// The group of ranks that a program joins, with its operations. A cheap value handle; copies share
/// everything. Thread-safe. Operations of the same name are matched across ranks in the order in which they
/// were started.
///
///   auto flock = starling::join();
///   std::vector<float> x(1000, float(flock.rank()));
///   for (int k = 0; k < 100; ++k) flock.neighbor_allreduce(x);
///
/// Operations take any contiguous range with data() and size(), or a pointer and a count, and work in place:
/// an lvalue is changed and returned by reference, a temporary is changed and returned by value, so x =
/// flock.neighbor_allreduce(std::move(y)) allocates nothing. For a constant, neighbor_allreduce returns a
/// changed copy. Every `*_nonblocking` returns at once; its buffers must live until the Pending has ended.
class Flock {
 public:
  explicit Flock(std::shared_ptr<Fabric> fabric);

  /// Whether both handles refer to the same flock.
  friend bool operator==(const Flock& a, const Flock& b) { return a.state_ == b.state_; }

  Rank rank() const;
  Rank size() const;

  /// The sub-flock of the ranks that pass the same color, ordered by key, then rank. A collective; a rank
  /// with a negative color gets a sub-flock of its own. Ranks of a sub-flock count from 0; errors and
  /// StepRecords name ranks of the whole flock.
  Flock split(std::int64_t color, std::int64_t key = 0);
  /// The sub-flock of these ranks, in this order. Exactly these ranks must call it.
  Flock group(const std::vector<Rank>& ranks);

  /// Admits the processes that wait to join (STARLING_ENTER, docs/networks.md): a collective, between two
  /// operations. If none waits, it costs a short operation and returns this flock. Otherwise it returns a new
  /// flock: the live ranks in their order, then the newcomers, with the same settings and the same schedule
  /// for the new number of ranks, from its step 0. The old flock ends with its last handle. `next` makes the
  /// schedule for the new size; the default makes the one of the same name. If `next` throws InvalidArgument,
  /// the newcomers keep waiting.
  Flock admit(const std::function<SchedulePtr(Rank size)>& next = nullptr);
  [[deprecated("call admit")]] Flock welcome(const std::function<SchedulePtr(Rank size)>& next = nullptr) {
    return admit(next);
  }
  /// The number of ranks that joined by admit(); they are the last ranks of this flock.
  Rank newcomers() const;
  /// Whether this rank is a newcomer.
  bool entered() const { return rank() >= size() - newcomers(); }

  /// The number of ranks that share a machine: the ranks of this host if all hosts have the same number of
  /// consecutive ranks, else 1. STARLING_RANKS_PER_MACHINE overrides it.
  Rank local_size() const;
  Rank local_rank() const { return rank() % local_size(); }
  Rank machine_rank() const { return rank() / local_size(); }
  Rank machine_size() const { return size() / local_size(); }
  /// Sets which machines exchange in hierarchical operations; by default the static exponential graph.
  void set_machine_schedule(const std::string& spec);
  void set_machine_schedule(const SchedulePtr& between_machines);

  /// Sets which ranks exchange in neighbor operations; by default the static exponential graph. Every rank
  /// must set the same schedule between the same operations; it begins at its step 0.
  void set_schedule(const SchedulePtr& schedule);
  void set_schedule(const std::string& spec);
  /// Whether set_schedule() has been called.
  bool schedule_is_set() const;
  SchedulePtr schedule() const;
  /// The schedule in use: after a death, over the live members only.
  SchedulePtr current_schedule() const;
  [[deprecated("call current_schedule")]] SchedulePtr load_topology() const { return current_schedule(); }
  /// The step that the next scheduled operation takes, from 0.
  Step step() const;

  /// The bytes that this rank's operations have sent so far, without headers: a block sent to two neighbors
  /// counts twice. Long all-reduces count 2 (n - 1) / n blocks, the least that has to cross the network;
  /// short ones (up to 32 KiB) count a whole block for every other rank.
  std::uint64_t bytes_sent() const;

  /// Bounds how long a wait may last while no message arrives; 300 s unless set here or by STARLING_TIMEOUT.
  void set_timeout(std::chrono::nanoseconds timeout);
  /// Call it when the user has interrupted the program: operations in flight may take at most this much
  /// longer, then they throw TimedOut, until set_timeout() is called.
  void interrupt(std::chrono::nanoseconds patience);
  std::chrono::nanoseconds timeout() const;

  /// Errors and warnings about operations named `beginning`/... will name this call.
  void set_user_call(const std::string& beginning, std::shared_ptr<const UserCall> call);

  /// The text by which errors and warnings name the operation `name`.
  std::string described(std::string_view name) const;

  /// send() waits while its receiver has more than this many bytes of this rank's messages unread, and throws
  /// TimedOut after the timeout. 1 GiB, or STARLING_SEND_LIMIT, unless set here.
  void set_send_limit(std::uint64_t bytes);
  std::uint64_t send_limit() const;

  /// The algorithm of all-reduces: direct (the default and, on one host, the fastest), ring, doubling,
  /// halving, tree, or native: long sums by the fabric's own engine if it has one (MPI), not reproducible
  /// from run to run. Every rank must choose the same.
  void set_allreduce(const std::string& algorithm);

  /// Sets what happens when a rank dies; every rank must choose the same, before the first operation. With
  /// OnPeerFailure::reweight, `starling run` does not stop the survivors.
  void on_peer_failure(OnPeerFailure policy);
  OnPeerFailure on_peer_failure() const;
  [[deprecated("call on_peer_failure")]] void on_loss(OnPeerFailure policy) { on_peer_failure(policy); }
  /// Whether messages of neighbor averages are lost on purpose; see Faults.
  bool loses_messages() const;
  /// With OnPeerFailure::reweight: continues without `lost`, a rank of the whole flock. Needed only after
  /// recv, which throws PeerLost; the other operations continue by themselves.
  void continue_without(Rank lost) const;
  [[deprecated("call continue_without")]] void go_on_without(Rank lost) const { continue_without(lost); }
  /// The live ranks that all members agree on; with OnPeerFailure::reweight, some may be missing.
  View view() const;
  /// Calls `observer` with a record of each scheduled neighbor average after it has finished; a step of two
  /// phases (a group's mean, then neighbors) makes two records.
  void observe(StepObserver observer);

  // Neighbor averages: x <- w_self x + sum of w_j x_j over this step's neighbors; then the step advances.

  template <WritableRange T>
  T neighbor_allreduce(T&& x, Name name = "neighbor_allreduce") {
    operations().neighbor_allreduce(in_place(x), {}, name).wait();
    return std::forward<T>(x);
  }
  template <ConstantRange T>
  auto neighbor_allreduce(const T& x, Name name = "neighbor_allreduce") {
    return neighbor_allreduce(copy_of(x), name);
  }
  template <typename E>
  void neighbor_allreduce(E* data, std::size_t count, Name name = "neighbor_allreduce") {
    neighbor_allreduce(std::span(data, count), name);
  }
  /// Out of place: writes the result to `out`.
  template <ElementRange In, WritableRange Out>
  void neighbor_allreduce(const In& in, Out&& out, Name name = "neighbor_allreduce") {
    operations().neighbor_allreduce(between(in, out, name), {}, name).wait();
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending neighbor_allreduce_nonblocking(const In& in, Out&& out,
                                                       Name name = "neighbor_allreduce") {
    return operations().neighbor_allreduce(between(in, out, name), {}, name);
  }

  /// Memory that other ranks read in place: write the block to it, then pass the slot to neighbor_allreduce.
  template <typename E>
  Slot<E> outgoing(std::size_t count) {
    return Slot<E>(fabric(), outgoing_bytes(count * sizeof(E)));
  }
  /// Device memory is written by work on the calling thread's stream (kernel/device.h).
  Outgoing outgoing_bytes(std::size_t bytes, MemoryKind memory = MemoryKind::host) const;
  /// Zero-copy: out <- w_self slot + sum of w_j x_j.
  template <typename E, WritableRange Out>
  void neighbor_allreduce(Slot<E>&& slot, Out&& out, Name name = "neighbor_allreduce") {
    neighbor_allreduce_nonblocking(std::move(slot), out, name).wait();
  }
  template <typename E, WritableRange Out>
  [[nodiscard]] Pending neighbor_allreduce_nonblocking(Slot<E>&& slot, Out&& out,
                                                       Name name = "neighbor_allreduce") {
    Pieces pieces = between(slot, out, name);
    return operations().neighbor_allreduce(std::move(pieces), std::move(slot).memory(), name);
  }

  /// With the caller's own weights instead of the schedule's. If sources or destinations are left out, a
  /// collective infers them.
  template <WritableRange T>
  T neighbor_allreduce(T&& x, const Weighted& weights, Name name = "neighbor_allreduce") {
    operations().neighbor_allreduce(in_place(x), {}, weights, name).wait();
    return std::forward<T>(x);
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending neighbor_allreduce_nonblocking(const In& in, Out&& out, const Weighted& weights,
                                                       Name name = "neighbor_allreduce") {
    return operations().neighbor_allreduce(between(in, out, name), {}, weights, name);
  }

  /// Averages several tensors as one message; they may differ in type and length.
  template <RangeOfBuffers T>
  void neighbor_allreduce_group(T&& tensors, Name name = "neighbor_allreduce_group") {
    operations().neighbor_allreduce(group(tensors, name), {}, name).wait();
  }
  template <RangeOfBuffers T>
  [[nodiscard]] Pending neighbor_allreduce_group_nonblocking(T&& tensors,
                                                             Name name = "neighbor_allreduce_group") {
    return operations().neighbor_allreduce(group(tensors, name), {}, name);
  }

  /// The mean within each machine, then the machines' weighted average.
  template <WritableRange T>
  T hierarchical_neighbor_allreduce(T&& x, Name name = "hierarchical_neighbor_allreduce") {
    operations().hierarchical_neighbor_allreduce(in_place(x), name).wait();
    return std::forward<T>(x);
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending hierarchical_neighbor_allreduce_nonblocking(
      const In& in, Out&& out, Name name = "hierarchical_neighbor_allreduce") {
    return operations().hierarchical_neighbor_allreduce(between(in, out, name), name);
  }

  /// x <- self_weight x + (1 - self_weight) x_peer on both ranks, which must give the same weight.
  template <WritableRange T>
  T pair_gossip(T&& x, Rank peer, double self_weight = 0.5, Name name = "pair_gossip") {
    operations().pair_gossip(in_place(x), peer, self_weight, name).wait();
    return std::forward<T>(x);
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending pair_gossip_nonblocking(const In& in, Out&& out, Rank peer, double self_weight = 0.5,
                                                Name name = "pair_gossip") {
    return operations().pair_gossip(between(in, out, name), peer, self_weight, name);
  }

  /// Sums along a tree (chain, binary-tree, star, bfs-tree ...) that take one step per hop and need no
  /// collective; see relay.h. Every rank creates it.
  Relay relay(const std::string& tree, Name name = "relay", const RelayOptions& options = {});
  Relay relay(const SchedulePtr& tree, Name name = "relay", const RelayOptions& options = {});

  // Collectives of all live ranks.

  /// Every rank gets the sum, minimum, maximum or average over all ranks, with the same bits.
  template <WritableRange T>
  T allreduce(T&& x, Reduction reduction = Reduction::sum, Name name = "allreduce") {
    operations().allreduce(in_place(x), reduction, name).wait();
    return std::forward<T>(x);
  }
  template <typename E>
  void allreduce(E* data, std::size_t count, Reduction reduction = Reduction::sum, Name name = "allreduce") {
    allreduce(std::span(data, count), reduction, name);
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending allreduce_nonblocking(const In& in, Out&& out, Reduction reduction = Reduction::sum,
                                              Name name = "allreduce") {
    return operations().allreduce(between(in, out, name), reduction, name);
  }
  template <RangeOfBuffers T>
  void allreduce_group(T&& tensors, Reduction reduction = Reduction::sum, Name name = "allreduce_group") {
    operations().allreduce(group(tensors, name), reduction, name).wait();
  }
  /// allreduce with Reduction::average.
  template <WritableRange T>
  T average(T&& x, Name name = "average") {
    return allreduce(std::forward<T>(x), Reduction::average, name);
  }

  /// This rank's part of the reduced block: elements [r count / n, (r + 1) count / n).
  template <ElementRange T>
  auto reduce_scatter(const T& x, Reduction reduction = Reduction::sum, Name name = "reduce_scatter") {
    std::vector<ElementOf<const T>> part;
    reduce_scatter_nonblocking(x, part, reduction, name).wait();
    return part;
  }
  template <ElementRange T>
  [[nodiscard]] Pending reduce_scatter_nonblocking(const T& x, std::vector<ElementOf<const T>>& part,
                                                   Reduction reduction = Reduction::sum,
                                                   Name name = "reduce_scatter") {
    return operations().reduce_scatter(const_buffer_of(x), room_in(part, const_buffer_of(x), name), reduction,
                                       name);
  }

  /// Every rank gets the values of `root`.
  template <WritableRange T>
  T broadcast(T&& x, Rank root, Name name = "broadcast") {
    operations().broadcast(in_place(x), root, name).wait();
    return std::forward<T>(x);
  }
  template <typename E>
  void broadcast(E* data, std::size_t count, Rank root, Name name = "broadcast") {
    broadcast(std::span(data, count), root, name);
  }
  template <WritableRange T>
  [[nodiscard]] Pending broadcast_nonblocking(T& x, Rank root, Name name = "broadcast") {
    return operations().broadcast(in_place(x), root, name);
  }
  template <RangeOfBuffers T>
  void broadcast_group(T&& tensors, Rank root, Name name = "broadcast_group") {
    operations().broadcast(group(tensors, name), root, name).wait();
  }

  /// All ranks' elements one after another; lengths may differ.
  template <ElementRange T>
  auto allgather(const T& x, Name name = "allgather") {
    std::vector<ElementOf<const T>> all;
    allgather_nonblocking(x, all, name).wait();
    return all;
  }
  template <ElementRange T>
  [[nodiscard]] Pending allgather_nonblocking(const T& x, std::vector<ElementOf<const T>>& all,
                                              Name name = "allgather") {
    return operations().allgather(const_buffer_of(x), room_in(all, const_buffer_of(x), name), name);
  }
  /// The elements of this step's sources one after another, in the order of the schedule, without the
  /// caller's own; then the step advances.
  template <ElementRange T>
  auto neighbor_allgather(const T& x, Name name = "neighbor_allgather") {
    std::vector<ElementOf<const T>> all;
    neighbor_allgather_nonblocking(x, all, name).wait();
    return all;
  }
  template <ElementRange T>
  [[nodiscard]] Pending neighbor_allgather_nonblocking(const T& x, std::vector<ElementOf<const T>>& all,
                                                       Name name = "neighbor_allgather") {
    return operations().neighbor_allgather(const_buffer_of(x), room_in(all, const_buffer_of(x), name), name);
  }

  /// Returns when every rank has called it.
  void barrier(Name name = "barrier") { barrier_nonblocking(name).wait(); }
  [[nodiscard]] Pending barrier_nonblocking(Name name = "barrier");

  // One-sided operations; see window.h.

  /// A collective. The window has a slot for every neighbor in any step of the schedule. `x` must live as
  /// long as the window: until Window::free() or the end of the flock. Until then no other window may have
  /// the name.
  template <WritableRange T>
  Window create_window(T& x, Name name, const WindowOptions& options = {}) {
    return create_window(buffer_of(x), name, options);
  }
  Window create_window(Buffer tensor, Name name, const WindowOptions& options = {});
  template <WritableRange T>
  [[deprecated("call create_window")]] Window win_create(T& x, Name name, const WindowOptions& options = {}) {
    return create_window(buffer_of(x), name, options);
  }
  /// The window with this name, until it is freed.
  Window window(Name name) const;
  bool has_window(const std::string& name) const;
  [[deprecated("call Window::free")]] static void win_free(Window&& window) {
    Window(std::move(window)).free();
  }
  [[deprecated("call Window::free")]] void win_free(Name name) const { window(name).free(); }

  // Point-to-point messages. send() waits only at the send limit.

  template <ElementRange T>
  void send(const T& x, Rank to, Name name = "send") {
    operations().send(const_buffer_of(x), to, name);
  }
  template <WritableRange T>
  void recv(T&& x, Rank from, Name name = "send") {
    operations().recv(buffer_of(x), from, name).wait();
  }
  template <WritableRange T>
  [[nodiscard]] Pending recv_nonblocking(T& x, Rank from, Name name = "send") {
    return operations().recv(buffer_of(x), from, name);
  }

 private:
  template <typename T>
  static Pieces in_place(T& x) {
    const Buffer buffer = buffer_of(x);
    return {{buffer, buffer, 0}};
  }
  template <typename In, typename Out>
  static Pieces between(const In& in, Out& out, const Name& name) {
    return checked({const_buffer_of(in), {}, 0}, buffer_of(out), name);
  }
  template <typename T>
  static Pieces group(T& tensors, const Name& name) {
    std::vector<Buffer> blocks;
    for (auto& tensor : tensors) blocks.push_back(as_buffer(tensor));
    return checked(pieces_of(blocks), name);
  }
  template <typename E>
  static Room room_in(std::vector<E>& elements, ConstBuffer in, const Name& name) {
    if (in.count > 0 && in.address() == elements.data()) refuse_alias(name);
    return [&elements](std::size_t count) {
      elements.resize(count);
      return buffer_of(elements);
    };
  }
  /// Throws InvalidArgument if in and out differ in type or length, or if the group is empty.
  static Pieces checked(Piece piece, Buffer out, const Name& name);
  static Pieces checked(Pieces pieces, const Name& name);
  [[noreturn]] static void refuse_alias(const Name& name);
  /// The operations on buffers that the templates above call.
  ByteOperations operations() const { return ByteOperations(*this); }
  std::shared_ptr<Fabric> fabric() const;
  friend class ByteOperations;
  friend class NeighborExchanger;
  friend class Window;

  Flock(const Flock& parent, const std::vector<Rank>& global_ranks);
  explicit Flock(std::shared_ptr<FlockState> state) : state_(std::move(state)) {}
  friend Flock join(const Faults& faults);
  /// After newcomers were admitted: join() returns this flock instead of `before` from now on.
  void replace(const Flock& before) const;
  Exchange all_neighbors(const SchedulePtr& schedule) const;

  std::shared_ptr<FlockState> state_;
};

/// Joins the flock that this process was started in (by `starling run`, mpirun, torchrun or srun), or makes a
/// flock of one. With STARLING_ENTER=1, waits until the members of a running job admit this process by
/// admit(). STARLING_TIMEOUT=seconds bounds joining and every wait.
///
/// A process has one flock: while a handle of it exists, join() returns the same flock, from any thread. When
/// the last handle is destroyed, the process leaves; it can join again if all ranks do.
Flock join();
/// Joins with injected faults such as lost messages, to test a program. Throws InvalidArgument if this
/// process has joined with other faults.
Flock join(const Faults& faults);
/// The number of ranks that the launcher has started; empty without a launcher.
std::optional<Rank> launched_ranks();

}  // namespace starling::flock

namespace starling {
using flock::Flock;
using flock::join;
using flock::launched_ranks;
}  // namespace starling

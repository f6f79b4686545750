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
class NeighborExchanger;

/// The group a program joins: rank, size and the operations. A cheap value handle; copies share everything.
/// Every function may be called from several threads; operations under the same name meet in the order they
/// were started.
///
///     auto flock = starling::join();
///     std::vector<float> x(1000, float(flock.rank()));
///     for (int k = 0; k < 100; ++k) flock.neighbor_allreduce(x);
///
/// Operations take anything contiguous with data() and size(), or a pointer and a count, and work in place:
/// an lvalue is changed and returned by reference, a temporary is changed and handed back, so that x =
/// flock.neighbor_allreduce(std::move(y)) allocates nothing; of a constant,
/// neighbor_allreduce returns a changed copy. Every
/// `*_nonblocking` returns at once; its blocks must live until the Pending has ended.
class Flock {
 public:
  explicit Flock(std::shared_ptr<Fabric> fabric);

  /// Handles of the same flock.
  friend bool operator==(const Flock& a, const Flock& b) { return a.state_ == b.state_; }

  Rank rank() const;
  Rank size() const;

  /// The flocks that `split` makes of this one: those with the same colour, in the order of key, then rank. A
  /// collective; with a negative colour a rank stays alone. Ranks of a sub-flock count from 0; errors and
  /// StepRecords name ranks of the whole flock.
  Flock split(std::int64_t colour, std::int64_t key = 0);
  /// The flock of these ranks, in this order. Called by all of them, and nobody else.
  Flock group(const std::vector<Rank>& ranks);

  /// Admits the processes that wait to join (STARLING_ENTER, docs/networks.md): a collective, between two
  /// operations. Where none waits it costs a short operation and returns this flock. Otherwise it returns a
  /// new one: of the live ranks, in their order, then the newcomers; settings are as they were, the schedule
  /// is the same over the new number of ranks and begins at its step 0. The old flock ends with its last
  /// handle. `next` makes the schedule for so many ranks, by the name of this one unless given, and throws
  /// InvalidArgument where the program cannot continue with so many: then newcomers keep waiting.
  Flock welcome(const std::function<SchedulePtr(Rank size)>& next = nullptr);
  /// How many of this flock's last ranks have come in later than the others.
  Rank newcomers() const;
  bool entered() const { return rank() >= size() - newcomers(); }

  /// Ranks that share a machine: those of this host where hosts have equally many and ranks are dealt to them
  /// in order, else 1; or as many as STARLING_RANKS_PER_MACHINE pretends.
  Rank local_size() const;
  Rank local_rank() const { return rank() % local_size(); }
  Rank machine_rank() const { return rank() / local_size(); }
  Rank machine_size() const { return size() / local_size(); }
  /// Which machines exchange in hierarchical operations; the static exponential graph unless set.
  void set_machine_schedule(const std::string& spec);
  void set_machine_schedule(const SchedulePtr& between_machines);

  /// Which ranks exchange in neighbour operations; the static exponential graph unless set. Every rank must
  /// set the same, between the same operations; the schedule begins at its step 0.
  void set_schedule(const SchedulePtr& schedule);
  void set_schedule(const std::string& spec);
  /// Whether set_schedule() has been called.
  bool schedule_is_set() const;
  SchedulePtr schedule() const;
  /// The schedule as it holds now: over the live members, once a death has changed it.
  SchedulePtr current_schedule() const;
  [[deprecated("call current_schedule")]] SchedulePtr load_topology() const { return current_schedule(); }
  /// The step that the next scheduled operation takes, from 0.
  Step step() const;

  /// The bytes that this rank's operations have sent so far, headers not counted: a block to two neighbours
  /// counts twice. Long all-reduces count what has to cross the network, 2 (n - 1) / n blocks; short ones
  /// (up to 32 KiB) go to everybody whole.
  std::uint64_t bytes_sent() const;

  /// Bounds how long a wait goes on while nothing comes; 300 s unless set here or by STARLING_TIMEOUT.
  void set_timeout(std::chrono::nanoseconds timeout);
  std::chrono::nanoseconds timeout() const;

  /// Errors and warnings about operations whose names begin with `beginning` and a slash name this call.
  void set_user_call(const std::string& beginning, std::shared_ptr<const UserCall> call);

  /// What errors and warnings call something of this name.
  std::string described(std::string_view name) const;

  /// send() waits while its receiver has more than so many bytes of this rank's messages unread;
  /// after the timeout it throws TimedOut. 1 GiB, or STARLING_SEND_LIMIT, unless set here.
  void set_send_limit(std::uint64_t bytes);
  std::uint64_t send_limit() const;

  /// The algorithm of all-reduces: direct (the default and, on one host, the fastest), ring, doubling,
  /// halving, tree, or native: long sums by the fabric's engine where it has such (MPI), not reproducible
  /// from run to run. Every rank must choose the same.
  void set_allreduce(const std::string& algorithm);

  /// What happens when a rank dies; every rank must choose the same, before the first operation.
  /// A launcher of ours (`starling run`) is told, so that it does not stop the survivors.
  void on_peer_failure(OnPeerFailure policy);
  OnPeerFailure on_peer_failure() const;
  [[deprecated("call on_peer_failure")]] void on_loss(OnPeerFailure policy) { on_peer_failure(policy); }
  /// Whether messages of neighbour averages get lost, see Faults.
  bool loses_messages() const;
  /// With OnPeerFailure::reweight: this rank has seen that another (of the whole flock) is lost, and
  /// continues. The operations say so by themselves, but for recv, which raises PeerLost.
  void go_on_without(Rank lost) const;
  /// The ranks that are alive, as far as all agree (with OnPeerFailure::reweight).
  View view() const;
  /// Calls `observer` with what each scheduled neighbour average did, when it has done it; a step of two
  /// phases (a group's mean, then neighbours) is two records.
  void observe(StepObserver observer);

  // Neighbour averages: x <- w_self x + sum of w_j x_j over this step's neighbours, and the step moves on.

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
  /// Out of place.
  template <ElementRange In, WritableRange Out>
  void neighbor_allreduce(const In& in, Out&& out, Name name = "neighbor_allreduce") {
    operations().neighbor_allreduce(between(in, out, name), {}, name).wait();
  }
  template <ElementRange In, WritableRange Out>
  [[nodiscard]] Pending neighbor_allreduce_nonblocking(const In& in, Out&& out,
                                                       Name name = "neighbor_allreduce") {
    return operations().neighbor_allreduce(between(in, out, name), {}, name);
  }

  /// Outgoing memory that others read in place: write the block to be sent there, then hand it over.
  template <typename E>
  Slot<E> outgoing(std::size_t count) {
    return Slot<E>(fabric(), outgoing_bytes(count * sizeof(E)));
  }
  Outgoing outgoing_bytes(std::size_t bytes) const;
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

  /// With weights of one's own instead of the schedule's. A side left out is inferred by a collective.
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

  /// Many tensors as one message; they may differ in type and length.
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

  /// x <- self_weight x + (1 - self_weight) x_peer on both, who must give the same weight.
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

  /// Sums along a tree (chain, binary-tree, star, bfs-tree ...) that take a step per hop and no collective:
  /// see relay.h. Made by every rank.
  Relay relay(const std::string& tree, Name name = "relay", const RelayOptions& options = {});

  /// Exchanges of a schedule whose combining is the caller's: see neighbor_exchanger.h, which callers
  /// include. Made by every rank.
  NeighborExchanger neighbor_exchanger(const SchedulePtr& schedule, Name name = "exchanges") const;

  // Collectives of everybody alive.

  /// Everybody gets the sum, minimum, maximum or average of all; bit for bit the same on every rank.
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
  template <RangeOfBuffers T>
  [[nodiscard]] Pending allreduce_group_nonblocking(T&& tensors, Reduction reduction = Reduction::sum,
                                                    Name name = "allreduce_group") {
    return operations().allreduce(group(tensors, name), reduction, name);
  }
  /// allreduce with Reduction::average.
  template <WritableRange T>
  T average(T&& x, Name name = "average") {
    return allreduce(std::forward<T>(x), Reduction::average, name);
  }

  /// The part of the reduced whole that belongs to this rank: elements [r count / n, (r + 1) count / n).
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

  /// Everybody gets what `root` holds.
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
  template <RangeOfBuffers T>
  [[nodiscard]] Pending broadcast_group_nonblocking(T&& tensors, Rank root, Name name = "broadcast_group") {
    return operations().broadcast(group(tensors, name), root, name);
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
  /// The elements of this step's sources one after another, in the order of the schedule, without one's own;
  /// the step moves on.
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

  /// Returns when everybody has called it.
  void barrier(Name name = "barrier") { barrier_nonblocking(name).wait(); }
  [[nodiscard]] Pending barrier_nonblocking(Name name = "barrier");

  // One-sided: see window.h.

  /// A collective. The slots are of the schedule's neighbours, in all its steps. `x` must live as long as the
  /// window, which is until Window::free() or the end of the flock; until then the name is taken.
  template <WritableRange T>
  Window create_window(T& x, Name name, const WindowOptions& options = {}) {
    return create_window(buffer_of(x), name, options);
  }
  Window create_window(Buffer tensor, Name name, const WindowOptions& options = {});
  template <WritableRange T>
  [[deprecated("call create_window")]] Window win_create(T& x, Name name, const WindowOptions& options = {}) {
    return create_window(buffer_of(x), name, options);
  }
  /// The window of this name, from its making until it is freed.
  Window window(Name name) const;
  bool has_window(const std::string& name) const;
  [[deprecated("call Window::free")]] static void win_free(Window&& window) {
    Window(std::move(window)).free();
  }
  [[deprecated("call Window::free")]] void win_free(Name name) const { window(name).free(); }

  // Point to point. Sending never waits.

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
      return elements.data();
    };
  }
  /// InvalidArgument where in and out differ; where a group is empty.
  static Pieces checked(Piece piece, Buffer out, const Name& name);
  static Pieces checked(Pieces pieces, const Name& name);
  [[noreturn]] static void refuse_alias(const Name& name);
  /// The operations on buffers, which the templates above call.
  ByteOperations operations() const { return ByteOperations(*this); }
  std::shared_ptr<Fabric> fabric() const;
  friend class ByteOperations;
  friend class Window;

  Flock(const Flock& parent, const std::vector<Rank>& global_ranks);
  explicit Flock(std::shared_ptr<FlockState> state) : state_(std::move(state)) {}
  friend Flock join(const Faults& faults);
  /// Newcomers were admitted: from now on join() returns this flock instead of `before`.
  void replace(const Flock& before) const;
  Exchange all_neighbors(const SchedulePtr& schedule) const;

  std::shared_ptr<FlockState> state_;
};

/// Joins the flock that this process was started in (by `starling run`, mpirun, torchrun or srun on one
/// host), or makes a flock of one. With STARLING_ENTER=1, waits until the members of a job that runs let this
/// process in by welcome(). STARLING_TIMEOUT=seconds bounds joining and every wait.
///
/// A process has one flock: as long as a handle of it is left, this returns the same flock, from any thread.
/// When the last handle is dropped, the process leaves; it joins again when all ranks do.
Flock join();
/// The same, with messages that get lost and other faults, to see what a program makes of them. Throws
/// InvalidArgument where this process has joined with other faults.
Flock join(const Faults& faults);
/// How many ranks a launcher has started this process among; nothing where there is no launcher.
std::optional<Rank> launched_ranks();

}  // namespace starling::flock

namespace starling {
using flock::Flock;
using flock::join;
using flock::launched_ranks;
}  // namespace starling

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/types.h"
#include "starling/fabric/outgoing.h"
#include "starling/flock/block.h"
#include "starling/kernel/await_terms.h"
#include "starling/kernel/reduce.h"
#include "starling/kernel/term.h"
#include "starling/method/one_sided.h"
#include "starling/topology/exchange.h"
#include "starling/topology/schedule.h"

// How the method of one block communicates. A flock implements these interfaces, and so does the simulator.
// No function but Channel::wait() blocks: a started operation has written its result once wait() returns.

namespace starling::method {

/// An exchange of one block with the neighbors of a round that leaves the combining to its owner. It starts
/// with NeighborChannel::share() and is complete once the channel has been waited for. The neighbors' blocks
/// are lent until this object is dropped; dropping it earlier abandons the exchange.
class SharedExchange {
 public:
  /// The channel's side of it.
  class Lender {
   public:
    virtual std::span<const Term> lent_terms(Buffer out) = 0;
    virtual void give_back() noexcept = 0;

   protected:
    ~Lender() = default;
  };

  SharedExchange() = default;
  explicit SharedExchange(Lender& lender) : lender_(&lender) {}
  SharedExchange(SharedExchange&& other) noexcept : lender_(std::exchange(other.lender_, nullptr)) {}
  SharedExchange& operator=(SharedExchange&& other) noexcept {
    SharedExchange(std::move(other)).swap(*this);
    return *this;
  }
  ~SharedExchange() {
    if (lender_ != nullptr) lender_->give_back();
  }

  explicit operator bool() const { return lender_ != nullptr; }
  /// The terms of the weighted average, this rank's own first. `out` is the memory of the block that was
  /// shared: where messages have fewer bits than the block, the average is computed there.
  std::span<const Term> terms(Buffer out) const { return lender_->lent_terms(out); }
  /// The same for owners that read the terms by other means than the block's arithmetic: on a device this
  /// waits until they have arrived, and leaves out lost ones, whose weights this rank's own term gets.
  std::vector<Term> arrived_terms(Buffer out) const { return kernel::await_terms(terms(out)); }

 private:
  void swap(SharedExchange& other) noexcept { std::swap(lender_, other.lender_); }
  Lender* lender_ = nullptr;
};

/// Exchanges with the neighbors of the schedule's next round.
class NeighborChannel {
 public:
  /// Each piece's out <- the weighted average of the neighbors' in. All pieces travel as one message; on a
  /// two-block schedule they are a and b. Each piece says what a lost message means for it.
  virtual void mix(Pieces pieces) = 0;
  /// out <- the weighted average of the block in outgoing memory and those that the neighbors sent. Where
  /// that is of another type than out, out holds the block, too.
  virtual void mix(Outgoing written, Buffer out) = 0;
  /// out <- the sum of weight * (theirs - own): what mixing would change, without the rounding of a mean. A
  /// pair that loses a message in either direction leaves its difference out at both ends, so that with
  /// symmetric weights the flock's differences sum to zero in any case. out is not in.
  virtual void differences(Piece piece) = 0;
  /// Sends x, which must stay as it is until the exchange is dropped; one exchange at a time. `written`
  /// holds x already, in its outgoing type, or nothing. Bytes (an encoded block) travel as they are.
  virtual SharedExchange share(ConstBuffer x, Outgoing written) = 0;
  /// Memory that neighbors read, to be filled and handed to share() or mix(); empty where a block is sent in
  /// another form than it has here.
  virtual Outgoing outgoing(std::size_t bytes, MemoryKind memory) = 0;
  /// The type in which elements of blocks of this type are written there.
  virtual DType outgoing_type(DType block) const { return block; }

  /// This rank's exchange in the next round.
  virtual Exchange next() const = 0;
  virtual Step round() const = 0;
  virtual void set_round(Step round) = 0;
  /// The epoch of the view in which the last round took place.
  virtual std::uint32_t epoch() const = 0;

 protected:
  ~NeighborChannel() = default;
};

/// Operations with all ranks, or with any one of them, whatever the schedule.
class CollectiveChannel {
 public:
  /// The reduction of all ranks' pieces, in place.
  virtual void reduce(Pieces pieces, Reduction reduction) = 0;
  /// All ranks' blocks one after another, by rank; dead ranks are left out.
  virtual void gather(ConstBuffer mine, std::vector<std::byte>& all) = 0;
  virtual void broadcast(Pieces pieces, Rank root) = 0;

  /// Messages of different tags are matched separately.
  virtual void send(Pieces pieces, Rank to, const std::string& tag) = 0;
  /// Where ranks continue after a peer failure, pieces of a dead rank stay as they are.
  virtual void receive(Pieces pieces, Rank from, const std::string& tag) = 0;

  /// Starts an average of all ranks' blocks in the background; the block is copied. One at a time.
  virtual void start_average(ConstBuffer block) = 0;
  /// Whether the average is complete; if so, it has been written to `out`.
  virtual bool average_arrived(Buffer out) = 0;
  /// Makes the next wait() wait for the average.
  virtual void await_average() = 0;

 protected:
  ~CollectiveChannel() = default;
};

/// Memory of a block that other ranks write to at any time.
class OneSidedChannel {
 public:
  /// The window of this block, which must live as long as the channel. Every rank creates it with its first
  /// call.
  virtual OneSided& window(Buffer block, OneSided::Start start) = 0;
  /// Tells the neighbors how many steps this rank has made; later deposits carry this number.
  virtual void set_progress(Step steps) = 0;
  /// Makes the next wait() wait until all sources have made at least `steps` steps.
  virtual void await_progress(Step steps) = 0;

 protected:
  ~OneSidedChannel() = default;
};

/// One part of what a relay remembers from step to step, as a checkpoint keeps it.
struct ChannelMemory {
  std::string name;
  std::vector<std::byte> bytes;
};

/// Averages along the schedule's tree that take a step per hop.
class RelayChannel {
 public:
  /// Starts one step of the relay.
  virtual void start(Piece piece) = 0;
  /// The block that stands in for those that have not arrived yet, by the rule of that name; copied.
  virtual void set_reference(ConstBuffer x) = 0;
  /// The messages that the next step passes on, to be saved; and those of a checkpoint.
  virtual std::vector<ChannelMemory> memory() = 0;
  virtual void remember(const std::vector<ChannelMemory>& memory) = 0;

 protected:
  ~RelayChannel() = default;
};

/// How a method relays: what replaces blocks that have not arrived ("counts", "reference", "own" or "zero"),
/// and whether messages are used one step late, so that they travel during the computation. Empty where it
/// does not relay.
struct RelayRule {
  std::string missing;
  bool overlap = false;
  explicit operator bool() const { return !missing.empty(); }
};

/// The communication of one block: who takes part, what is under way, and the parts that its method uses.
class Channel {
 public:
  virtual ~Channel() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;
  /// Seconds on this rank's clock, which is the modelled one in the simulator.
  virtual double now() const = 0;

  /// The schedule that the block follows; null where the method needs none.
  virtual SchedulePtr schedule() const = 0;
  /// Null where the method follows no schedule, or relays along it.
  virtual NeighborChannel* neighbors() = 0;
  virtual CollectiveChannel& collective() = 0;
  /// Null where the method follows no schedule, which says whose windows there are.
  virtual OneSidedChannel* one_sided() = 0;
  /// Null where the method declares no RelayRule.
  virtual RelayChannel* relay() = 0;

  /// Whether an operation has been started and not been waited for.
  virtual bool busy() const = 0;
  virtual bool ready() = 0;
  virtual void wait() = 0;
  /// Seconds in wait() so far.
  virtual double waited() const = 0;

  /// Counts a block of this age, in steps, as used; windows count theirs themselves.
  virtual void note_age(Step age) = 0;
  virtual Staleness staleness() const = 0;
  /// The driver starts this step; errors and warnings name it.
  virtual void note_step(Step /*step*/) {}
  /// The block's state was restored from a checkpoint: drops deposits and background averages from before.
  virtual void abandon_messages() {}
};
using ChannelPtr = std::unique_ptr<Channel>;

}  // namespace starling::method

namespace starling {
using method::Channel;
using method::ChannelPtr;
}  // namespace starling

#pragma once

#include <cstdint>
#include <functional>
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
#include "starling/kernel/update.h"
#include "starling/method/one_sided.h"
#include "starling/topology/exchange.h"
#include "starling/topology/schedule.h"

// How the method of one block communicates. A flock and the simulator implement these interfaces. No function
// but Channel::wait() blocks: a started operation has written its result when wait() returns.

namespace starling::method {

/// An exchange of one block with the neighbors of a round whose owner combines the blocks. It starts with
/// NeighborChannel::share() and is complete when the channel has been waited for. The neighbors' blocks are
/// lent until this object is destroyed; destroying it earlier abandons the exchange.
class SharedExchange {
 public:
  /// The channel's side of an exchange.
  class Lender {
   public:
    virtual std::span<const Term> lent_terms(Buffer out) = 0;
    virtual kernel::PassMessages lent_messages() { return {}; }
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
  /// The terms of the weighted average, this rank's own first. `out` is the memory of the shared block: if
  /// messages have fewer bits than the block, the average is computed there.
  std::span<const Term> terms(Buffer out) const { return lender_->lent_terms(out); }
  /// The messages, if they have fewer bits than the block; otherwise empty. Averaged with them, the block is
  /// what terms() would have computed.
  kernel::PassMessages messages() const { return lender_->lent_messages(); }
  /// The terms for owners that read them without the block's arithmetic: on a device, waits until they have
  /// arrived and leaves out lost ones, whose weights this rank's own term gets.
  std::vector<Term> arrived_terms(Buffer out) const { return kernel::await_terms(terms(out)); }

 private:
  void swap(SharedExchange& other) noexcept { std::swap(lender_, other.lender_); }
  Lender* lender_ = nullptr;
};

/// Exchanges with the neighbors of the schedule's next round.
class NeighborChannel {
 public:
  /// For each piece: out <- the weighted average of the neighbors' in. All pieces are sent as one message; on
  /// a two-block schedule they are a and b. Each piece says how a lost message affects it.
  virtual void mix(Pieces pieces) = 0;
  /// out <- the weighted average of the block in outgoing memory and the neighbors' blocks. If outgoing
  /// memory has another type than out, out also contains the block before.
  virtual void mix(Outgoing written, Buffer out) = 0;
  /// out <- the sum of weight * (theirs - own): the change that mixing would make, without the rounding of a
  /// mean. If a pair loses a message in either direction, both ends leave its difference out, so with
  /// symmetric weights the flock's differences always sum to zero. out must not be in.
  virtual void differences(Piece piece) = 0;
  /// Sends x, which must stay unchanged until the exchange is destroyed; one exchange at a time. `written` is
  /// outgoing memory that already contains x in its outgoing type, or empty. Bytes (an encoded block) are
  /// sent unchanged.
  virtual SharedExchange share(ConstBuffer x, Outgoing written) = 0;
  /// Memory that neighbors read, for a block like this, to be filled and passed to share() or mix(); empty if
  /// it is sent together with another one.
  virtual Outgoing outgoing(ConstBuffer block) = 0;
  /// The type and number of the elements in outgoing memory, for a block like this.
  virtual ConstBuffer outgoing_form(ConstBuffer block) const { return {block.dtype, nullptr, block.count}; }
  /// Where the parameters end that int8 messages scale separately; empty: the block is one parameter.
  virtual std::span<const std::size_t> ends() const { return {}; }

  /// This rank's exchange in the next round.
  virtual Exchange next() const = 0;
  virtual Step round() const = 0;
  virtual void set_round(Step round) = 0;
  /// The epoch of the view in which the last round took place.
  virtual std::uint32_t epoch() const = 0;

 protected:
  ~NeighborChannel() = default;
};

/// Operations with all ranks, or with any single rank, whatever the schedule.
class CollectiveChannel {
 public:
  /// The reduction of all ranks' pieces, in place.
  virtual void reduce(Pieces pieces, Reduction reduction) = 0;
  /// All ranks' blocks one after another, by rank; dead ranks are left out.
  virtual void gather(ConstBuffer mine, std::vector<std::byte>& all) = 0;
  virtual void broadcast(Pieces pieces, Rank root) = 0;

  /// Messages of different tags are matched separately.
  virtual void send(Pieces pieces, Rank to, const std::string& tag) = 0;
  /// If ranks continue after a peer failure, pieces from a dead rank stay unchanged.
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

/// One part of a relay's state, as a checkpoint keeps it.
struct ChannelMemory {
  std::string name;
  std::vector<std::byte> bytes;
};

/// Averages along the schedule's tree, which take one step per hop.
class RelayChannel {
 public:
  /// Starts one step of the relay.
  virtual void start(Piece piece) = 0;
  /// Sets the block that replaces those that have not arrived yet, for RelayRule::missing = "reference";
  /// copied.
  virtual void set_reference(ConstBuffer x) = 0;
  /// The messages that the next step passes on, for saving; and the reverse.
  virtual std::vector<ChannelMemory> memory() = 0;
  virtual void remember(const std::vector<ChannelMemory>& memory) = 0;

 protected:
  ~RelayChannel() = default;
};

/// How a method relays: what replaces blocks that have not arrived ("counts", "reference", "own" or "zero"),
/// and whether messages are used one step late, so that they travel during the computation. Empty if the
/// method does not relay.
struct RelayRule {
  std::string missing;
  bool overlap = false;
  explicit operator bool() const { return !missing.empty(); }
};

/// The communication of one block: its ranks, its operations in flight, and the parts that its method uses.
class Channel {
 public:
  virtual ~Channel() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;
  /// Seconds on this rank's clock, which is the modeled one in the simulator.
  virtual double now() const = 0;

  /// The schedule that the block follows; null if the method needs none.
  virtual SchedulePtr schedule() const = 0;
  /// Null if the method follows no schedule, or relays along it.
  virtual NeighborChannel* neighbors() = 0;
  virtual CollectiveChannel& collective() = 0;
  /// Null if the method follows no schedule, since that defines the windows.
  virtual OneSidedChannel* one_sided() = 0;
  /// Null if the method declares no RelayRule.
  virtual RelayChannel* relay() = 0;

  /// Whether an operation was started that has not been waited for.
  virtual bool busy() const = 0;
  virtual bool ready() = 0;
  virtual void wait() = 0;
  /// Seconds in wait() so far.
  virtual double waited() const = 0;

  /// Counts a used block of this age, in steps; windows count theirs themselves.
  virtual void note_age(Step age) = 0;
  virtual Staleness staleness() const = 0;
  /// Called by the driver at the start of a step, which errors and warnings then name.
  virtual void note_step(Step /*step*/) {}
  /// Runs `pass`, which updates the block `name` on a device; may record when the device does so.
  virtual void record_update(const std::string& /*name*/, Step /*step*/, const std::function<void()>& pass) {
    pass();
  }
  /// The block's state was restored from a checkpoint: drops deposits and background averages from before.
  virtual void abandon_messages() {}
};
using ChannelPtr = std::unique_ptr<Channel>;

}  // namespace starling::method

namespace starling {
using method::Channel;
using method::ChannelPtr;
}  // namespace starling

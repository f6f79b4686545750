#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/flock/block.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/reduce.h"
#include "starling/method/one_sided.h"
#include "starling/topology/exchange.h"
#include "starling/topology/schedule.h"

namespace starling {

/// Something that a channel itself remembers from step to step.
struct ChannelMemory {
  std::string name;
  std::vector<std::byte> bytes;
};

/// How a method relays: counts, reference, own or zero for what has not arrived, and whether messages are
/// used one step late, so that they travel during the computation. Nothing where it does not relay.
struct RelayRule {
  std::string missing;
  bool overlap = false;
  explicit operator bool() const { return !missing.empty(); }
};

/// What a method can ask of the others for one block. Nothing here waits but wait(): what was started is in
/// its place afterwards. A flock is behind it, or the simulator.
class Channel {
 public:
  virtual ~Channel() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;

  // With the neighbours of the schedule's next round.

  /// Each piece's out <- the weighted average of the neighbours' in. They travel as one message; of a
  /// two-block schedule they are a and b. Each says what a lost message means for it.
  virtual void mix(Pieces pieces) = 0;
  /// out <- the sum of weight * (theirs - own): what mixing would change, without the rounding of a mean. A
  /// pair that loses a message in either direction leaves its difference out at both ends, so that with
  /// symmetric weights the flock's differences sum to zero in any case. out is not in.
  virtual void differences(Piece piece) = 0;
  /// The next round's exchange of x, whose combining is left to shared(): x as it will have to stay until
  /// then. Bytes (an encoded block) travel as they are.
  virtual void share(ConstBlock x) = 0;
  /// After wait(): the summands of x's average, this rank's own first. `out` may be used to compute them; it
  /// is x's own memory.
  virtual std::span<const Term> shared(MutableBlock out) = 0;
  /// Gives back what shared() lent.
  virtual void shared_done() = 0;

  /// Memory that neighbours read, for the next block to be written to; null where a block is sent in another
  /// shape than it has here.
  virtual void* outgoing(std::size_t bytes) = 0;
  /// outgoing() was filled with what x is now, so that share() need not copy it.
  virtual void keep_for_share() = 0;
  /// x is not what was kept for share() any more.
  virtual void forget_kept() = 0;
  /// out <- the weighted average of what was written to outgoing() and what the neighbours sent.
  virtual void mix_outgoing(MutableBlock out) = 0;

  // With everybody.

  /// Everybody's reduced values, in place.
  virtual void reduce(Pieces pieces, Reduction reduction) = 0;
  /// Everybody's blocks one after another, by rank; of the dead nothing.
  virtual void gather(ConstBlock mine, std::vector<std::byte>& all) = 0;
  virtual void broadcast(Pieces pieces, Rank root) = 0;
  /// One step of a relay along the schedule's tree.
  virtual void relay(Piece piece) = 0;
  /// What stands in for blocks that have not been relayed yet, by the rule of that name; copied.
  virtual void set_reference(ConstBlock x) = 0;

  // With one other rank; letters of different tags are different conversations.

  virtual void send(Pieces pieces, Rank to, const std::string& tag) = 0;
  /// From the dead nothing comes where the others go on: the pieces stay as they are.
  virtual void receive(Pieces pieces, Rank from, const std::string& tag) = 0;

  // Without waiting for anybody.

  /// The one-sided memory of this block, which must live as long as the channel; made by every rank at its
  /// first call.
  virtual OneSided& window(MutableBlock block, OneSided::Start start) = 0;
  /// Tells the neighbours how many steps this rank has made; what put() sends is of that age.
  virtual void set_progress(Step steps) = 0;
  /// Something that has been started: all sources have made at least so many steps.
  virtual void await_progress(Step steps) = 0;
  /// Something so many steps old was used; what update() and read() use is noted by itself.
  virtual void note_age(Step age) = 0;
  virtual Staleness staleness() const = 0;
  /// An average of everybody's block, which is copied, that nobody waits for. One at a time.
  virtual void start_average(ConstBlock block) = 0;
  /// Whether it is there: then it has been written to `out`.
  virtual bool average_arrived(MutableBlock out) = 0;
  /// Something that has been started: that average.
  virtual void await_average() = 0;
  /// Seconds on this rank's clock, which is the modelled one in the simulator.
  virtual double now() const = 0;

  /// Something was started and has not been waited for.
  virtual bool busy() const = 0;
  virtual bool ready() = 0;
  virtual void wait() = 0;

  /// What the next round is going to be.
  virtual Exchange next() const = 0;
  virtual SchedulePtr schedule() const = 0;
  /// Of the view that the last round was done in.
  virtual std::uint32_t epoch() const = 0;
  virtual Step round() const = 0;
  virtual void set_round(Step round) = 0;
  /// What it remembers between two steps (a relay its messages), and that again.
  virtual std::vector<ChannelMemory> memory() = 0;
  virtual void remember(const std::vector<ChannelMemory>& memory) = 0;
  /// Seconds in wait() so far.
  virtual double waited() const = 0;
  /// The driver begins this step with it: what errors and warnings name.
  virtual void note_step(Step /*step*/) {}
};
using ChannelPtr = std::unique_ptr<Channel>;

}  // namespace starling

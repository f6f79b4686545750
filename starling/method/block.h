#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "starling/kernel/arithmetic.h"
#include "starling/method/channel.h"
#include "starling/method/update.h"

namespace starling::method {

/// The number in a block of one, of whatever floating type and in whatever memory; one on a device is waited
/// for.
double read_number(ConstBuffer block);
void write_number(Buffer block, double value);

/// The part of a block's vector that belongs to a segment.
inline Buffer part_of(Buffer whole, const Segment& segment) {
  return whole.part(segment.begin, segment.count);
}

/// A flat run of parameters with its gradient, a local optimizer and a channel: what methods work on. Its
/// owner keeps the memory of x and gradient, which never moves. Methods leave all arithmetic on vectors to
/// the block, which knows in which memory they are.
class Block {
  struct State {
    std::string key;
    OwnedBuffer memory;
    bool restored = false;  // lies in host memory until the method asks for it
  };
  std::deque<State>
      states_;  // whose memory stays where it is, until what the channel has under way has ended

 public:
  Block(std::string name, Buffer x, Buffer gradient, std::vector<Segment> segments, UpdatePtr update,
        ChannelPtr channel);

  const std::string name;  // the same on every rank
  const Buffer x;
  const Buffer gradient;
  std::vector<Segment> segments;

  /// The gradient stands for this many times itself (clipping, averaging): updates take it into account.
  double gradient_scale = 1;
  /// No update in this step (an overflow, an empty batch); the block takes part as it is.
  bool skipped = false;
  Step step = 0;  // of training, from 0

  DType dtype() const { return x.dtype; }
  std::size_t count() const { return x.count; }
  /// x in host memory, for methods that compute by hand.
  template <typename E>
  std::span<E> elements() const {
    return {x.host<E>(), x.count};
  }

  // Local.

  /// x <- x + U(x, gradient).
  void update() { update_as(x); }
  /// x <- x + U(x, scale * direction), for methods that correct the gradient.
  void update_along(ConstBuffer direction, double scale = 1);
  /// out <- x + U(x, gradient); what x is afterwards is not said unless it is `out`.
  void update_as(Buffer out);
  /// Every segment, with or without a gradient of its own: where the gradient is everybody's.
  void activate();

  // Arithmetic on vectors of this block, in whatever memory they are: see kernel/arithmetic.h.

  const Arithmetic& arithmetic() const { return arithmetic_in(x.memory); }
  /// out <- the sum of weight * vector; `out` may be one of them.
  void combine(Buffer out, std::initializer_list<Term> terms) const {
    arithmetic().combine(out, {terms.begin(), terms.size()});
  }
  void combine(Buffer out, std::span<const Term> terms) const { arithmetic().combine(out, terms); }
  void copy(Buffer out, ConstBuffer in) const { arithmetic().copy(out, in); }
  void zero(Buffer out) const { arithmetic().zero(out); }
  /// sum += v.
  void add(Buffer sum, ConstBuffer v) const { arithmetic().reduce(Reduction::sum, sum, v); }

  /// A vector like x that lasts from step to step and is saved with the block; zero at first.
  Buffer state(const std::string& key);
  /// One number of x's type, that can travel with it.
  Buffer scalar(const std::string& key);
  /// One number of float64 that can travel with x; `initial` at first.
  Buffer wide_scalar(const std::string& key, double initial);
  /// Numbers of float64 that last, in host memory.
  std::span<double> numbers(const std::string& key, std::size_t count = 1, double initial = 0);
  /// A vector of another type that lasts, where x is; and one in host memory.
  Buffer make_state(const std::string& key, DType type, std::size_t elements);
  Buffer host_state(const std::string& key, DType type, std::size_t elements);
  /// All of them, to be saved; restored ones may lie in other memory than the method's.
  std::vector<NamedState> states();
  /// Between two steps: forgets all of them, as if the method had not begun.
  void forget_states() { states_.clear(); }
  /// A forgotten one as it was saved, in host memory, to be filled by the caller. It moves to the memory in
  /// which the method asks for it.
  Buffer restore_state(const std::string& key, DType type, std::size_t elements);

  // With the others; in place when the driver has waited.

  /// The parts of the channel; throw InvalidArgument where the method has not declared what they need.
  NeighborChannel& neighbors() const;
  CollectiveChannel& collective() const { return channel->collective(); }
  OneSidedChannel& one_sided() const;
  RelayChannel& relay() const;

  /// v <- the weighted average of the neighbors' v.
  void mix(Buffer v) { neighbors().mix({in_place(v)}); }
  void mix(std::initializer_list<Buffer> vectors);
  /// The same in one message; the sums over the flock of the second ones stay, even if messages are lost.
  void mix(std::initializer_list<Buffer> averaged, std::initializer_list<Buffer> summed);
  /// x <- the weighted average of everybody's x + U(x, gradient); the update writes straight into memory that
  /// the neighbors read.
  void update_and_mix();
  /// Sends x to the neighbors; update_from_shared() makes x <- z + U(z, gradient) of the average z.
  void share();
  void update_from_shared();
  /// Sends another block, whose combining is the method's: take_shared(), once it is complete.
  void share(ConstBuffer v);
  SharedExchange take_shared() { return std::move(shared_); }

  /// x was written by its owner: a copy of it in outgoing memory is not x any more.
  void x_changed() { next_ = {}; }
  /// Drops the exchange of share() and the copy in outgoing memory.
  void drop_shared();

  static Piece in_place(Buffer v) { return {v, v, 0}; }

  /// The settings of the local optimizer, by group of segments; null where they are not known.
  Hypers hypers;
  const UpdatePtr local_update;
  const ChannelPtr channel;
  std::uint32_t seen_epoch = 0;
  /// Called with an update's result that is not finite, before it is sent; throws to keep it here. On a
  /// device it is called at the next update, since this one does not wait for its result.
  std::function<void(ConstBuffer result)> on_nonfinite;

 private:
  void apply(std::span<const Term> from, ConstBuffer direction, double scale, Buffer out, Buffer copy);
  bool* device_mark();

  State& find_state(const std::string& key, DType dtype, std::size_t count, MemoryKind memory);
  Buffer checked_state(const std::string& key, DType type, std::size_t elements, MemoryKind memory);

  std::shared_ptr<bool> mark_;
  // After the channel, whose memory they hold.
  Outgoing next_;  // holds x, to be sent by the next share()
  SharedExchange shared_;
};

}  // namespace starling::method

namespace starling {
using method::Block;
}  // namespace starling

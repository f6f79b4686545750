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

/// The number in a block of one element, of any floating type and in any kind of memory; waits for a device.
double read_number(ConstBuffer block);
void write_number(Buffer block, double value);
/// The same for as many numbers as the block has.
void write_numbers(Buffer block, std::span<const double> values);

/// The part of a block's vector that belongs to a segment.
inline Buffer part_of(Buffer whole, const Segment& segment) {
  return whole.part(segment.begin, segment.count);
}

/// A flat run of parameters with its gradient, local optimizer and channel: what methods work on. Its owner
/// keeps the memory of x and gradient, which never moves. Methods leave all arithmetic on vectors to the
/// block, which knows in which kind of memory they are.
class Block {
  struct State {
    std::string key;
    OwnedBuffer memory;
    bool restored = false;  // in host memory until the method asks for it
  };
  std::deque<State> states_;  // their memory must stay in place until the channel's operations have ended

 public:
  Block(std::string name, Buffer x, Buffer gradient, std::vector<Segment> segments, UpdatePtr update,
        ChannelPtr channel);

  const std::string name;  // the same on every rank
  const Buffer x;
  const Buffer gradient;
  std::vector<Segment> segments;

  /// The factor of the gradient (from clipping or averaging); updates apply it.
  double gradient_scale = 1;
  /// If given, parameters in fewer bits than x, whose master weights x are. update_from_shared() writes x
  /// there, too, and sets `wrote_rounded`; after other changes of x the owner does.
  Buffer rounded;
  bool wrote_rounded = false;
  /// No update in this step (an overflow, an empty batch); the block still takes part, with x unchanged.
  bool skipped = false;
  Step step = 0;  // of training, from 0

  DType dtype() const { return x.dtype; }
  std::size_t count() const { return x.count; }
  /// x in host memory, for methods that do their own arithmetic.
  template <typename E>
  std::span<E> elements() const {
    return {x.host<E>(), x.count};
  }

  // Local functions.

  /// x <- x + U(x, gradient).
  void update() { update_as(x); }
  /// x <- x + U(x, scale * direction), for methods that correct the gradient.
  void update_along(ConstBuffer direction, double scale = 1);
  /// out <- x + U(x, gradient). Unless it is `out`, x is undefined afterwards.
  void update_as(Buffer out);
  /// Activates all segments, also those without a gradient on this rank, because other ranks have one.
  void activate();

  // Arithmetic on vectors of this block, in any kind of memory; see kernel/arithmetic.h.

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

  /// A vector like x that is kept from step to step and saved with the block; initially zero.
  Buffer state(const std::string& key);
  /// One number of x's type that can be sent with x.
  Buffer scalar(const std::string& key);
  /// One float64 number that can be sent with x; its first value is `initial`.
  Buffer wide_scalar(const std::string& key, double initial);
  /// Float64 numbers that are kept, in host memory.
  std::span<double> numbers(const std::string& key, std::size_t count = 1, double initial = 0);
  /// A vector of another type that is kept, in x's kind of memory or in host memory.
  Buffer make_state(const std::string& key, DType type, std::size_t elements);
  Buffer host_state(const std::string& key, DType type, std::size_t elements);
  /// All kept vectors, for saving. Restored ones may be in another kind of memory than the method's.
  std::vector<NamedState> states();
  /// Forgets all kept vectors, as if the method had not begun. Call it between two steps.
  void forget_states() { states_.clear(); }
  /// Memory on the host for a kept vector to be restored, which the caller fills. It moves to the right kind
  /// of memory when the method asks for it.
  Buffer restore_state(const std::string& key, DType type, std::size_t elements);

  // Functions that communicate; they work in place and are complete when the driver has waited.

  /// The parts of the channel. They throw InvalidArgument if the method has not declared that it needs them.
  NeighborChannel& neighbors() const;
  CollectiveChannel& collective() const { return channel->collective(); }
  OneSidedChannel& one_sided() const;
  RelayChannel& relay() const;

  /// v <- the weighted average of the neighbors' v.
  void mix(Buffer v) { neighbors().mix({in_place(v)}); }
  void mix(std::initializer_list<Buffer> vectors);
  /// Mixes all vectors in one message. The sums over the flock of the `summed` ones are preserved, even if
  /// messages are lost.
  void mix(std::initializer_list<Buffer> averaged, std::initializer_list<Buffer> summed);
  /// x <- the weighted average of x + U(x, gradient) over the neighbors; the update is written directly to
  /// outgoing memory.
  void update_and_mix();
  /// Sends x to the neighbors. Then update_from_shared() sets x <- z + U(z, gradient) with their average z.
  void share();
  void update_from_shared();
  /// Sends another block, which the method combines itself: take_shared(), once it is complete.
  void share(ConstBuffer v);
  SharedExchange take_shared() { return std::move(shared_); }

  /// x was written by its owner, so the copy of it in outgoing memory is outdated.
  void x_changed() { next_ = {}; }
  /// Drops the exchange of share() and the copy in outgoing memory.
  void drop_shared();

  static Piece in_place(Buffer v) { return {v, v, 0}; }

  /// The settings of the local optimizer, by group of segments; null if they are not known.
  Hypers hypers;
  const UpdatePtr local_update;
  const ChannelPtr channel;
  std::uint32_t seen_epoch = 0;
  /// Called with an update's result that is not finite, before it is sent; it throws to keep the result here.
  /// On a device it is called at the next update, because an update does not wait for its result.
  std::function<void(ConstBuffer result)> on_nonfinite;

 private:
  void apply(UpdatePass pass);
  std::span<const std::size_t> parameter_ends() const;
  bool passes_messages() const;
  Outgoing outgoing_memory() const;
  Buffer message_in(const Outgoing& memory) const;
  bool* device_mark();

  State& find_state(const std::string& key, DType dtype, std::size_t count, MemoryKind memory);
  Buffer checked_state(const std::string& key, DType type, std::size_t elements, MemoryKind memory);

  std::shared_ptr<bool> mark_;
  // Declared after the channel, whose memory they hold.
  Outgoing next_;  // contains x, for the next share()
  SharedExchange shared_;
};

}  // namespace starling::method

namespace starling {
using method::Block;
}  // namespace starling

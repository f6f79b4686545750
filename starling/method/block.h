#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "starling/method/channel.h"
#include "starling/method/update.h"

namespace starling {

/// The number in a block of one, of whatever floating type.
double read_number(ConstBlock block);
void write_number(MutableBlock block, double value);

/// A flat run of parameters with its gradient, a local optimizer and a way to talk about it: what methods
/// work on. The memory of x and gradient is somebody else's and never moves.
class Block {
  struct State {
    std::string key;
    MutableBlock block;
    std::vector<std::byte> bytes;
  };
  std::deque<State>
      states_;  // whose memory stays where it is, until what the channel has under way has ended

 public:
  Block(std::string name, MutableBlock x, MutableBlock gradient, std::vector<Segment> segments,
        UpdatePtr update, ChannelPtr channel);

  const std::string name;  // the same on every rank
  const MutableBlock x;
  const MutableBlock gradient;
  std::vector<Segment> segments;

  /// The gradient stands for this many times itself (clipping, averaging): updates take it into account.
  double gradient_scale = 1;
  /// No update in this step (an overflow, an empty batch); the block takes part as it is.
  bool skipped = false;
  Step step = 0;  // of training, from 0

  DType dtype() const { return x.dtype; }
  std::size_t count() const { return x.count; }
  template <typename E>
  std::span<E> elements() const {
    return {static_cast<E*>(x.data), x.count};
  }

  // Local.

  /// x <- x + U(x, gradient).
  void update() { update_as(x); }
  /// x <- x + U(x, scale * direction), for methods that correct the gradient.
  void update_along(ConstBlock direction, double scale = 1);
  /// out <- x + U(x, gradient); what x is afterwards is not said unless it is `out`.
  void update_as(MutableBlock out);
  /// Every segment, with or without a gradient of its own: where the gradient is everybody's.
  void activate();

  /// A vector like x that lasts from step to step and is saved with the block; zero at first.
  MutableBlock state(const std::string& key);
  /// One number of x's type, that can travel with it.
  MutableBlock scalar(const std::string& key);
  /// Numbers of float64 that last.
  std::span<double> numbers(const std::string& key, std::size_t count = 1, double initial = 0);
  std::vector<NamedState> states();
  /// One of them, as it was saved: what the method has not asked for yet is made.
  MutableBlock make_state(const std::string& key, DType type, std::size_t elements);
  /// All of them, between two steps: as if the method had not begun.
  void forget_states() { states_.clear(); }

  // With the others; in place when the driver has waited.

  /// v <- the weighted average of the neighbours' v.
  void mix(MutableBlock v) { channel->mix({in_place(v)}); }
  void mix(std::initializer_list<MutableBlock> vectors);
  /// The same in one message; the sums over the flock of the second ones stay, even if messages are lost.
  void mix(std::initializer_list<MutableBlock> averaged, std::initializer_list<MutableBlock> summed);
  /// x <- the weighted average of everybody's x + U(x, gradient); the update writes straight into memory that
  /// the neighbours read.
  void update_and_mix();
  /// Tells the neighbours x; update_from_shared() makes x <- z + U(z, gradient) of the average z.
  void share() { channel->share(x); }
  void update_from_shared();

  static Piece in_place(MutableBlock v) { return {v, v.data, 0}; }

  /// The settings of the local optimizer, by group of segments; null where they are not known.
  Hypers hypers;
  const UpdatePtr local_update;
  const ChannelPtr channel;
  std::uint32_t seen_epoch = 0;
  /// Called with an update's result that is not finite, before it is sent; throws to keep it here.
  std::function<void(ConstBlock result)> on_nonfinite;

 private:
  void apply(std::span<const Term> from, const void* direction, double scale, MutableBlock out, void* copy);

  State& find_state(const std::string& key, DType dtype, std::size_t count);
};

}  // namespace starling

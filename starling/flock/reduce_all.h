#pragma once

#include "starling/flock/collective.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

/// Reduces all members' blocks, element by element in rank order, so every rank gets the same bits. Short
/// blocks go to all members, which all compute the same; of long blocks, member r reduces the r-th slice and
/// sends it to all.
class ReduceAll final : public Collective {
 public:
  /// All `pieces` have the same type. With `own_slice`, this rank gets only its slice (reduce_scatter).
  ReduceAll(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction,
            Room own_slice);

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  /// Elements [begin, end) of the concatenated pieces.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t count() const { return end - begin; }
  };
  Range slice(std::size_t place) const;
  /// Calls f(piece, its first element, count, elements of the range before it) for the parts of pieces in the
  /// range.
  template <typename F>
  void for_parts(Range range, const F& f) const;
  /// For a long block: posts to each member the slice that it reduces.
  void post_slices(const MessageHeader& header) const;
  void copy_in(Range range, Buffer to) const;
  void copy_out(Range range, const Arrival& from) const;
  void copy_out(Range range, ConstBuffer from) const;
  /// Whether the members' blocks are the terms of one sum.
  bool sums_terms() const;
  /// The elements of all members: this rank's own, and those of each arrival from `first` on.
  std::vector<Term> blocks(ConstBuffer own, std::size_t first) const;
  /// Reduces the members' blocks into `out`, which must not be one of them.
  void reduce_into(Buffer out, std::vector<Term> blocks) const;

  Pieces pieces_;
  DType dtype_;
  std::size_t count_;
  Reduction reduction_;
  Room own_slice_;
  bool sliced_ = false;
  int phase_ = 0;
  Outgoing sent_;                  // this rank's whole block
  Outgoing reduced_;               // its slice
  std::vector<Arrival> arrivals_;  // by index of the member, without this rank
};

}  // namespace starling::flock

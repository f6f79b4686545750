#pragma once

#include "starling/flock/collective.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

/// An all-reduce by rounds of messages between pairs. Two-byte elements are sent as float32 and rounded once,
/// at the end.
class StagedReduce final : public Collective {
 public:
  StagedReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction,
               AllreduceAlgorithm algorithm);

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  Buffer work(std::size_t begin, std::size_t count) const { return work_.buffer().part(begin, count); }
  void start_round();
  void average_in(const ReduceRound::Transfer& receive, Buffer own, Term arrived) const;

  Pieces pieces_;
  Reduction reduction_;
  AllreduceAlgorithm algorithm_;
  std::size_t count_;
  DType dtype_;  // of the messages
  kernel::OwnedBuffer work_;
  std::vector<ReduceRound> rounds_;
  std::size_t round_ = 0;
};

}  // namespace starling::flock

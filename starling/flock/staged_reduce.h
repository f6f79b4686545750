#pragma once

#include "starling/flock/collective.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

/// An all-reduce by rounds of messages between pairs. Elements of two bytes travel as float32 and are rounded
/// once, at the end.
class StagedReduce final : public Collective {
 public:
  StagedReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction,
               AllreduceAlgorithm algorithm);

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  std::byte* work(std::size_t element) { return work_.data() + element * size_of(dtype_); }
  void start_round();
  void average_in(const ReduceRound::Transfer& receive, const std::byte* arrived);

  Pieces pieces_;
  Reduction reduction_;
  AllreduceAlgorithm algorithm_;
  std::size_t count_;
  DType dtype_;  // of what travels
  std::vector<std::byte> work_;
  std::vector<ReduceRound> rounds_;
  std::size_t round_ = 0;
};

}  // namespace starling::flock

#pragma once

#include "starling/fabric/collectives.h"
#include "starling/flock/collective.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

/// A sum or average by the fabric's engine. The ranks first exchange headers; then rank 0 numbers the
/// operation, since an engine needs the same calls in the same order on all ranks.
class NativeReduce final : public Collective {
 public:
  /// Whether the engine supports the operation and all ranks are alive. Short blocks are not faster this way.
  static bool serves(const FlockState& flock, const Pieces& pieces, Reduction reduction);

  NativeReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction);

 private:
  void begin() override;
  bool settle() override;
  bool go_on() override;
  void deliver() override;

  void launch(std::uint64_t number);

  /// The memory that the engine works on, and its result; it may outlive an operation that was not waited
  /// for.
  struct Running {
    Outgoing memory;
    std::atomic<bool> done{false};
  };

  Pieces pieces_;
  Reduction reduction_;
  DType dtype_;
  std::size_t count_;
  bool ready_ = false;  // this rank and all others are ready
  std::shared_ptr<Running> running_;
  Deadline limit_{};
};

}  // namespace starling::flock

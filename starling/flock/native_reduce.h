#pragma once

#include "starling/fabric/collectives.h"
#include "starling/flock/collective.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

/// A sum or average by the fabric's engine. The ranks first exchange what they want; then rank 0
/// numbers the operation, since an engine needs all ranks to do the same in the same order.
class NativeReduce final : public Collective {
 public:
  /// Whether the engine supports it and all ranks that it involves are alive. Short blocks are no faster so.
  static bool serves(const FlockState& flock, const Pieces& pieces, Reduction reduction);

  NativeReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Reduction reduction);

 private:
  void begin() override;
  bool settle() override;
  bool go_on() override;
  void deliver() override;

  void launch(std::uint64_t number);

  /// What the engine works on and reports to; it may outlive an operation that was not waited for.
  struct Running {
    Outgoing memory;
    std::atomic<bool> done{false};
  };

  Pieces pieces_;
  Reduction reduction_;
  DType dtype_;
  std::size_t count_;
  bool ready_ = false;  // so are all others
  std::shared_ptr<Running> running_;
  Deadline limit_{};
};

}  // namespace starling::flock

#pragma once

#include "starling/fabric/collectives.h"
#include "starling/flock/collective.h"
#include "starling/kernel/reduce.h"

namespace starling {

/// A sum or average by the fabric's engine. Everybody first hears that all others want the same; then rank 0
/// numbers it, since an engine needs all ranks to do the same in the same order.
class NativeReduce final : public Collective {
 public:
  /// Whether the engine can, and all ranks take part who would be asked to. Short blocks are no faster so.
  static bool serves(const Core& core, const Pieces& pieces, Reduction reduction);

  NativeReduce(std::shared_ptr<Core> core, Topic& topic, Pieces pieces, Reduction reduction);

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

}  // namespace starling

#pragma once

#include "starling/fabric/services.h"

namespace starling {

/// The network's services for messages that lie in other memory.
class HybridServices final : public Services {
 public:
  /// `told` hears to whom something goes this way.
  HybridServices(Fabric& network, std::function<void(Rank)> told)
      : network_(network), told_(std::move(told)) {}

  std::uint64_t serve(Service service) override;
  void end(std::uint64_t service) override { network_.services()->end(service); }
  void tell(const Outgoing& message, std::uint64_t service, Rank to) override;
  std::optional<Arrival> ask(const Outgoing& question, std::uint64_t service, Rank to,
                             Deadline deadline) override;
  bool await_room(Rank to, Deadline deadline) const override {
    return network_.services()->await_room(to, deadline);
  }

 private:
  Fabric& network_;
  std::function<void(Rank)> told_;
};

}  // namespace starling

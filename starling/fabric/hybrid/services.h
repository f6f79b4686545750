#pragma once

#include "starling/fabric/services.h"

namespace starling {

/// The network's services for messages that lie in other memory. Between ranks of one host, whose messages
/// go another way, what was told is there before this rank goes on: so order holds.
class HybridServices final : public Services {
 public:
  HybridServices(Fabric& network, std::function<bool(Rank)> same_host)
      : network_(network), same_host_(std::move(same_host)) {}

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
  std::function<bool(Rank)> same_host_;
};

}  // namespace starling

#include "starling/fabric/hybrid/services.h"

#include <cstring>

namespace starling {
namespace {

Outgoing copy_to(Fabric& network, const Outgoing& message) {
  if (!message) return {};
  Outgoing copy = network.reserve(message.bytes().size());
  if (!message.bytes().empty())
    std::memcpy(copy.bytes().data(), message.bytes().data(), message.bytes().size());
  return copy;
}

}  // namespace

std::uint64_t HybridServices::serve(Service service) {
  return network_.services()->serve(
      [&network = network_, service = std::move(service)](Rank from, std::span<const std::byte> said) {
        return copy_to(network, service(from, said));
      });
}

void HybridServices::tell(const Outgoing& message, std::uint64_t service, Rank to) {
  network_.services()->tell(copy_to(network_, message), service, to);
  told_(to);
}

std::optional<Arrival> HybridServices::ask(const Outgoing& question, std::uint64_t service, Rank to,
                                           Deadline deadline) {
  return network_.services()->ask(copy_to(network_, question), service, to, deadline);
}

}  // namespace starling

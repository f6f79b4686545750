#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/wire.h"

namespace starling {

struct NetworkOptions {
  std::size_t memory_limit = std::size_t{16} << 30;  // bytes of messages that this rank holds, out and in
  std::chrono::milliseconds leave_timeout{5'000};    // how long who leaves waits for others to hear it out
  std::chrono::nanoseconds peer_timeout{};  // silence of a host is a death; 0: as the environment says
};

/// What a hybrid asks of a network fabric beside.
class NetworkFabric : public Fabric {
 public:
  /// Posts memory of somebody else's.
  virtual void post_memory(const network::Slice& part, const MessageHeader& header, Rank to) = 0;
  /// Called, on a thread of the wire, after something has come or somebody is gone; null for nobody.
  virtual void set_listener(std::function<void()> listener) = 0;
  /// Before anybody uses it.
  virtual void set_door(std::unique_ptr<Door> door) = 0;
};

/// Seconds after which the silence of a host is a death: STARLING_PEER_TIMEOUT, or 10.
std::chrono::nanoseconds read_peer_timeout();

/// A fabric over a wire: queues of what came in, memory for what goes out, notes for others.
std::shared_ptr<NetworkFabric> make_network_fabric(std::unique_ptr<network::Wire> wire,
                                                   std::unique_ptr<network::Ledger> ledger,
                                                   const NetworkOptions& options = {});

}  // namespace starling

#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric {

/// Options of a network fabric.
struct NetworkOptions {
  std::size_t memory_limit = std::size_t{16} << 30;  // bytes of messages in memory, sent and received
  std::chrono::milliseconds leave_timeout{
      5'000};  // how long a leaving rank waits for its peers to receive its messages
  std::chrono::nanoseconds
      peer_timeout{};  // a host that is silent for so long is dead; 0: read_peer_timeout()
};

/// A fabric over a network, with what a hybrid fabric needs in addition.
class NetworkFabric : public Fabric {
 public:
  /// Posts memory that this fabric does not own.
  virtual void post_memory(const network::Slice& part, const MessageHeader& header, Rank to) = 0;
  /// `listener` is called on a thread of the transport when a message has arrived or a peer is gone; null:
  /// none.
  virtual void set_listener(std::function<void()> listener) = 0;
  /// Must be called before the fabric is used.
  virtual void set_admission(std::unique_ptr<Admission> admission) = 0;
};

/// The time after which a silent host counts as dead: STARLING_PEER_TIMEOUT in seconds, default 10.
std::chrono::nanoseconds read_peer_timeout();

/// Makes a fabric over an engine's transport.
std::shared_ptr<NetworkFabric> make_network_fabric(std::unique_ptr<network::Transport> transport,
                                                   std::unique_ptr<network::Consensus> consensus,
                                                   const NetworkOptions& options = {});

}  // namespace starling::fabric

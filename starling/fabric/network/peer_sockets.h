#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/fabric/network/failure_detector.h"

namespace starling::fabric::network {

/// The TCP connections of this process (most of them are the engine's), by the rank at the other end; ranks
/// send each other ids of their connections. The kernel knows whether a peer's host still acknowledges data,
/// even while the peer's process is stopped. Not thread-safe.
class PeerSockets {
 public:
  explicit PeerSockets(Rank size) : of_peer_(static_cast<std::size_t>(size)) {}

  /// Finds all connections and returns an id of each, to be sent to the other ranks.
  std::vector<std::uint64_t> find();
  /// Takes the ids that `peer` sent.
  void set_peer_ids(Rank peer, std::span<const std::uint64_t> ids);
  /// `unanswered` if the peer's host has acknowledged nothing for longer than `limit` although data is
  /// unacknowledged.
  TcpContact contact(Rank peer, std::chrono::nanoseconds limit);

 private:
  struct Connection {
    int descriptor;
    std::uint64_t theirs;  // the id of the connection at its other end
  };
  std::vector<Connection> all_;
  std::vector<std::vector<Connection>> of_peer_;
};

}  // namespace starling::fabric::network

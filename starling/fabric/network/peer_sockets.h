#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/fabric/network/detector.h"

namespace starling::network {

/// The TCP connections of this process, most of them an engine's, by the ranks at their other ends: ranks
/// tell each other the addresses of theirs. The kernel knows whether a peer's host still acknowledges what is
/// sent, even while the peer's process is stopped. Used by one thread.
class PeerSockets {
 public:
  explicit PeerSockets(Rank size) : of_peer_(static_cast<std::size_t>(size)) {}

  /// Looks for connections; returns a word for each, for the other ranks.
  std::vector<std::uint64_t> find();
  /// The words that `peer` told.
  void told(Rank peer, std::span<const std::uint64_t> words);
  /// `unanswered` where a peer's host has acknowledged nothing for so long although it should have.
  Contact contact(Rank peer, std::chrono::nanoseconds limit);

 private:
  struct Connection {
    int descriptor;
    std::uint64_t theirs;  // the word that the other end has for it
  };
  std::vector<Connection> all_;
  std::vector<std::vector<Connection>> of_peer_;
};

}  // namespace starling::network

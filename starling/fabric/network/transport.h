#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/frame.h"
#include "starling/fabric/network/memory.h"

namespace starling::fabric::network {

/// What an engine (c10d, MPI) provides to a network fabric: it moves frames with their payloads between
/// ranks, in order per pair of ranks, on its own threads. Thread-safe after start().
class Transport {
 public:
  /// Receives the events of a transport. Calls about one peer come one after the other; none may block.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual void arrived(Rank from, const Frame& frame, Slice payload) = 0;
    /// Nothing more will come from the peer over its connection.
    virtual void gone(Rank peer) = 0;
  };

  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;
  /// Starts to call `receiver`; received payloads are in memory of the pool.
  virtual void start(Receiver& receiver, Pool& pool) = 0;
  /// Never blocks. False if the connection is closed or abandoned: then nothing was sent.
  virtual bool send(Rank to, const Frame& frame, const Slice& payload) = 0;
  /// Whether the peer has received everything that was sent, or is lost.
  virtual bool acknowledged(Rank peer) const = 0;
  virtual std::size_t bytes_in_flight(Rank peer) const = 0;
  /// Called by a waiting thread: does the work of the transport's threads while that is useful, at most until
  /// `done` or the deadline. The receiver is then called on this thread, which saves a context switch.
  virtual void make_progress(const std::function<bool()>& /*done*/, Deadline /*until*/) {}

  /// Whether the job survives the death of a rank, so that connections must be monitored.
  virtual bool tolerates_peer_failure() const { return false; }
  /// Frames that were sent over an abandoned connection and may not have arrived.
  struct Backlog {
    std::uint64_t first = 0;  // the number of the first of `frames`; heartbeats have none
    struct Item {
      Frame frame;
      Slice payload;
    };
    std::vector<Item> frames;
  };
  /// Stops sending over the connection to `peer`.
  virtual Backlog stop_sending(Rank /*peer*/) { return {}; }
  /// Then stops receiving from it, too; returns how many frames have arrived.
  virtual std::uint64_t stop_receiving(Rank /*peer*/) { return 0; }
  /// The peer is lost: transfers to and from it no longer delay those of other peers.
  virtual void abandon_peer(Rank /*peer*/) {}
  /// Bytes of long payloads received from `peer`, including unfinished ones.
  virtual std::uint64_t bytes_from(Rank /*peer*/) const { return 0; }

  /// Collective operations of the engine; null if it has none.
  virtual Collectives* collectives() { return nullptr; }
  /// Stops receiving; the receiver is not called afterwards.
  virtual void stop() = 0;
};

/// Write-once agreement among all ranks: the first proposal under a key wins. Thread-safe.
class Consensus {
 public:
  virtual ~Consensus() = default;
  virtual std::int64_t agree(std::uint64_t key, std::int64_t proposal) = 0;
};

}  // namespace starling::fabric::network

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/frame.h"
#include "starling/fabric/network/memory.h"

namespace starling::network {

/// What an engine (c10d, MPI) does for a network fabric: moves frames with their payloads between ranks, in
/// order per pair, on threads of its own.
class Wire {
 public:
  /// Who is told what comes in. Calls about one peer come one after the other; none may block.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual void arrived(Rank from, const Frame& frame, Slice payload) = 0;
    /// Nothing will come from it any more (over its connection).
    virtual void gone(Rank peer) = 0;
  };

  virtual ~Wire() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;
  /// From now on `receiver` is told; payloads lie in memory of the pool.
  virtual void start(Receiver& receiver, Pool& pool) = 0;
  /// Never blocks. False where the connection is gone or cut: then nothing was sent.
  virtual bool send(Rank to, const Frame& frame, const Slice& payload) = 0;
  /// The peer has everything that was sent, or is lost.
  virtual bool acknowledged(Rank peer) const = 0;
  virtual std::size_t bytes_on_the_way(Rank peer) const = 0;
  /// Who waits does the work of the wire's own threads for as long as that is of use, at most until it has
  /// what it wants: what comes in is then told on this thread, which spares a change of threads.
  virtual void help(const std::function<bool()>& /*there*/, Deadline /*until*/) {}

  /// Whether a rank can be lost without the job, so that connections are watched.
  virtual bool survives_losses() const { return false; }
  /// What was sent over a connection that is not used any more, and may not have arrived.
  struct Backlog {
    std::uint64_t first = 0;  // the number of the first of `frames`; heartbeats have none
    struct Item {
      Frame frame;
      Slice payload;
    };
    std::vector<Item> frames;
  };
  /// Nothing is sent over the connection to `peer` any more.
  virtual Backlog cut(Rank /*peer*/) { return {}; }
  /// Ends what still comes in over a connection that is cut; returns how many frames have come.
  virtual std::uint64_t end_receiving(Rank /*peer*/) { return 0; }
  /// The peer is lost: what is on its way to it and from it holds up nobody else.
  virtual void give_up(Rank /*peer*/) {}
  /// Bytes of long payloads that have come from `peer`, of unfinished ones too.
  virtual std::uint64_t bytes_from(Rank /*peer*/) const { return 0; }

  /// What the engine does for all ranks at once, where it does.
  virtual Collectives* collectives() { return nullptr; }
  /// Ends what comes in; nobody is told anything afterwards.
  virtual void stop() = 0;
};

/// The one register of all ranks: the first proposal under a key stays.
class Ledger {
 public:
  virtual ~Ledger() = default;
  virtual std::int64_t agree(std::uint64_t key, std::int64_t proposal) = 0;
};

}  // namespace starling::network

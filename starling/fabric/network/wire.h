#pragma once

#include <functional>
#include <memory>
#include <string>

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
    /// Nothing will come from it any more.
    virtual void gone(Rank peer) = 0;
  };

  virtual ~Wire() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;
  /// From now on `receiver` is told; payloads lie in memory of the pool.
  virtual void start(Receiver& receiver, Pool& pool) = 0;
  /// Never blocks; what goes to a lost peer goes nowhere.
  virtual void send(Rank to, const Frame& frame, const Slice& payload) = 0;
  /// The peer has everything that was sent, or is lost.
  virtual bool acknowledged(Rank peer) const = 0;
  virtual std::size_t bytes_on_the_way(Rank peer) const = 0;
  /// Who waits does the work of the wire's own threads for as long as that is of use, at most until it has
  /// what it wants: what comes in is then told on this thread, which spares a change of threads.
  virtual void help(const std::function<bool()>& /*there*/, Deadline /*until*/) {}
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

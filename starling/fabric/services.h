#pragma once

#include <functional>

#include "starling/fabric/fabric.h"

namespace starling {

/// What ranks do for each other where they share no memory: one asks or tells, and the other's fabric calls a
/// function there without troubling the program. Thread-safe.
class Services {
 public:
  /// Given what `from` says; what it returns is the answer, where one is wanted. Runs on a thread of the
  /// fabric and must not block. Calls from one rank come one after the other, in order with its messages.
  using Service = std::function<Outgoing(Rank from, std::span<const std::byte> said)>;

  virtual ~Services() = default;

  /// From now on others may call; what it is called is told to them by a message.
  virtual std::uint64_t serve(Service service) = 0;
  /// Not called any more when this returns.
  virtual void end(std::uint64_t service) = 0;

  /// To another rank, which does not answer. Never blocks; to a lost one it goes nowhere.
  virtual void tell(const Outgoing& message, std::uint64_t service, Rank to) = 0;
  /// The answer of another rank; empty where it is lost, does not serve any more, or not by the deadline.
  virtual std::optional<Arrival> ask(const Outgoing& question, std::uint64_t service, Rank to,
                                     Deadline deadline) = 0;
  /// Waits while so much is on its way to a rank that more would only pile up; false where that lasts.
  virtual bool await_room(Rank to, Deadline deadline) const = 0;
};

}  // namespace starling

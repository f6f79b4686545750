#pragma once

#include <functional>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

/// Remote procedure calls between ranks that do not share memory: the callee's fabric runs a handler without
/// involving the program's own threads. Owned by the fabric. Thread-safe.
class RemoteCalls {
 public:
  /// Receives the caller's arguments and returns the reply (ignored for notifications). Runs on a thread of
  /// the fabric and must not block. Calls from one rank run one after the other, in order with its messages.
  using Handler = std::function<Outgoing(Rank from, std::span<const std::byte> arguments)>;

  virtual ~RemoteCalls() = default;

  /// Registers a handler and returns its id. Callers learn the id through a message.
  virtual std::uint64_t add_handler(Handler handler) = 0;
  /// Once this has returned, the handler is not called any more.
  virtual void remove_handler(std::uint64_t handler) = 0;

  /// A one-way call. Never blocks; dropped if the callee is dead.
  virtual void notify(const Outgoing& arguments, std::uint64_t handler, Rank to) = 0;
  /// Calls a handler and waits for its reply. Empty if the callee is dead, has removed the handler, or does
  /// not reply before the deadline.
  virtual std::optional<Arrival> call(const Outgoing& arguments, std::uint64_t handler, Rank to,
                                      Deadline deadline) = 0;
  /// Waits while too many bytes are in flight to a rank; false after the deadline.
  virtual bool wait_for_room(Rank to, Deadline deadline) const = 0;
};

}  // namespace starling::fabric

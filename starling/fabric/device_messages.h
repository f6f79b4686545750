#pragma once

#include <cstddef>
#include <string_view>

#include "starling/fabric/outgoing.h"

namespace starling::fabric {

class Fabric;

/// Messages in device memory, which readers map, so that payloads never touch the host: an optional part of a
/// fabric, owned by it. Only headers pass through the host, ahead of the payload. Thread-safe.
class DeviceMessages {
 public:
  virtual ~DeviceMessages() = default;

  /// Reserves memory on the calling thread's device. Work on the thread's stream (kernel/device.h) writes it;
  /// that stream waits until the previous content has been read. Everything written before the first post is
  /// sent. Never blocks. Throws Error if the limit or the device's memory is exhausted, and names the ranks
  /// that hold it.
  virtual Outgoing reserve(std::size_t bytes) = 0;

  /// The device memory that this rank's messages use.
  struct Usage {
    std::size_t pieces = 0;  // allocated pieces
    std::size_t bytes = 0;   // of all pieces
    std::size_t slots = 0;   // slots for messages
  };
  virtual Usage usage() const = 0;
};

/// Reserves memory of this kind for a message. Throws InvalidArgument if the fabric does not support it.
Outgoing reserve(Fabric& fabric, std::size_t bytes, MemoryKind memory);
/// Throws InvalidArgument if the fabric has no messages in this kind of memory; `who` is the operation that
/// needs them.
void check_messages_in(Fabric& fabric, MemoryKind memory, std::string_view who);

}  // namespace starling::fabric

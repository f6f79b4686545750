#pragma once

#include <cstddef>
#include <string_view>

#include "starling/fabric/outgoing.h"

namespace starling::fabric {

class Fabric;

/// Messages in device memory, which readers map and which never touch the host: an optional part of a fabric,
/// and owned by it. Only their headers pass through the host, ahead of the payload. Thread-safe.
class DeviceMessages {
 public:
  virtual ~DeviceMessages() = default;

  /// Memory of the calling thread's device, to be written by work on its stream (kernel/device.h), which
  /// waits until what was there before has been read. What is written before the first post is what is sent.
  /// Never blocks. Throws Error where the limit or the device's memory is exhausted, naming the ranks that
  /// hold it.
  virtual Outgoing reserve(std::size_t bytes) = 0;

  /// The device memory that this rank's messages have.
  struct Usage {
    std::size_t pieces = 0;  // that were allocated
    std::size_t bytes = 0;   // of the pieces
    std::size_t slots = 0;   // that messages have been in
  };
  virtual Usage usage() const = 0;
};

/// Memory of this kind for a message. Throws InvalidArgument where the fabric has no messages in it.
Outgoing reserve(Fabric& fabric, std::size_t bytes, MemoryKind memory);
/// Throws that, unless the fabric has; `who` asks.
void check_messages_in(Fabric& fabric, MemoryKind memory, std::string_view who);

}  // namespace starling::fabric

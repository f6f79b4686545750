#pragma once

#include <cstdint>

#include "starling/base/buffer.h"
#include "starling/base/types.h"

namespace starling::fabric {

/// Encodes a message's element type as one byte of its header. The top bit is the kind of memory, on which
/// sender and receiver must agree, too.
constexpr std::uint8_t element_code(DType dtype, MemoryKind memory) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(dtype) | (memory == MemoryKind::host ? 0U : 0x80U));
}
constexpr DType dtype_in(std::uint8_t code) {
  return static_cast<DType>(code & 0x7FU);
}
constexpr MemoryKind memory_in(std::uint8_t code) {
  return (code & 0x80U) == 0 ? MemoryKind::host : MemoryKind::cuda;
}

/// The header of a message. Mailboxes match messages by it; a fabric only carries it.
struct MessageHeader {
  std::uint64_t name = 0;      // hash of the operation's name
  std::uint64_t sequence = 0;  // the k-th message under this name from this sender to this receiver
  std::uint64_t detail = 0;    // hash of what else must agree: schedule, root, reduction
  std::uint64_t count = 0;     // elements
  std::uint64_t bytes = 0;
  Step step = 0;
  std::uint32_t epoch = 0;  // of the membership view
  std::uint8_t dtype = 0;   // see element_code()
  std::uint8_t flag = 0;    // for a fabric's own use
  std::uint16_t kind = 0;   // see MessageKind
};
static_assert(sizeof(MessageHeader) == 56);

/// The operation that a message belongs to; sender and receiver must agree on it.
enum class MessageKind : std::uint16_t {
  point_to_point = 0,   // send and recv
  mismatch_report = 1,  // the receiver rejected message (name, sequence); the payload says why
  average,              // neighbor average
  long_average,         // a neighbor average in segments
  reduction,
  scattered_reduction,
  broadcast,
  gathering,
  neighbor_gathering,
  relay,
  staged_reduction,
  collective_aborted,  // the sender aborted collective (name, sequence) because rank `detail` died
  device_failed,       // the sender leaves; the payload says why
  order_mark,          // internal to a fabric: orders messages that take different paths
};

}  // namespace starling::fabric

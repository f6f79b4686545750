#pragma once

#include <cstdint>

#include "starling/fabric/message.h"

namespace starling::fabric::network {

/// The purpose of a frame. All but messages stay inside the fabric.
enum class FrameKind : std::uint32_t {
  message,
  received,     // acknowledges received frames, nothing else
  board_query,  // asks for a rank's step and carries agreements; answered at once: see board.cpp
  call,         // a remote call
  notify,       // a one-way remote call
  answer,       // to a query or a call
  refusal,      // there is no such handler
  leave,        // the last frame of a rank
  propose,      // to the leader of the consensus: see leader_consensus.h
  decided,
  heartbeat,         // between monitored transports: see monitored_transport.h
  relay,             // a frame between two ranks whose connection is broken, forwarded by this rank
  query_bytes_read,  // how many bytes of the sender's messages has the receiver read?
  bytes_read,        // the reply, in `number`
};

/// The header of everything that a transport sends; `message.bytes` bytes of payload follow.
struct Frame {
  FrameKind kind = FrameKind::message;
  std::uint32_t topic = 0;   // board_query: a line of the board; call, notify: a handler
  std::uint64_t number = 0;  // of a request, repeated in its answer; bytes_read: bytes
  // the number of frames from the other side that have arrived with their payloads
  std::uint64_t acknowledged = 0;
  MessageHeader message;
};
static_assert(sizeof(Frame) == 80);

}  // namespace starling::fabric::network

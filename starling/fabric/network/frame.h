#pragma once

#include <cstdint>

#include "starling/fabric/message.h"

namespace starling::network {

/// What a frame is for. All but messages stay inside the fabric.
enum class FrameKind : std::uint32_t {
  message,
  received,  // only acknowledges
  ask,       // a question to the fabric of the other side, which answers at once: see board.cpp
  call,      // a question to one of its services
  tell,      // the same without an answer
  answer,
  refusal,  // there is no such service
  leave,    // the last one
  propose,  // to who keeps the register: see register.h
  decided,
  heartbeat,  // between the wires that watch each other: see watched_wire.h
  relay,      // of two ranks whose connection is broken, through this one
  ask_read,   // how many bytes of this side's messages has the other read?
  read,       // so many, in `number`
};

/// What travels first; `message.bytes` of payload follow.
struct Frame {
  FrameKind kind = FrameKind::message;
  std::uint32_t topic = 0;         // of a question: a line of the board, or a service
  std::uint64_t number = 0;        // of a question, which its answer repeats; of read: bytes
  std::uint64_t acknowledged = 0;  // so many frames of the other side are here with their payloads
  MessageHeader message;
};
static_assert(sizeof(Frame) == 80);

}  // namespace starling::network

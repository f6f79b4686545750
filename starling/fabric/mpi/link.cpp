#include "starling/fabric/mpi/link.h"

#include <algorithm>
#include <cstring>

#include "starling/base/error.h"
#include "starling/fabric/mpi/engine.h"

namespace starling::fabric::mpi_engine {
namespace {

using network::Frame;
using network::FrameKind;
using network::Memory;
using network::Slice;

// Bytes to a peer on another host that are passed to MPI at once. Two ranks that exchange blocks share a
// connection, on which MPI's control messages wait behind payloads: with a whole block queued, Open MPI would
// send first in one direction, then in the other.
constexpr std::size_t kWindow = std::size_t{2} << 20;
constexpr std::size_t kPiece = std::size_t{256} << 20;  // bytes per call: MPI counts in ints

// Cancels a request that may never complete. Memory that MPI may still access is never freed.
void abandon(MPI_Request request, const Memory& memory, bool receives) {
  static auto* kept = new std::vector<Memory>;
  static std::mutex mutex;
  if (request == MPI_REQUEST_NULL) return;
  int done = 0;
  if (receives) MPI_Cancel(&request);
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  if (done != 0) return;
  MPI_Request_free(&request);
  const std::lock_guard lock(mutex);
  kept->push_back(memory);
}

}  // namespace

Link::Link(MPI_Comm comm, Rank own_rank, Rank peer, bool scheduled, network::TrafficControl& traffic,
           Deliver deliver)
    : comm_(comm),
      own_rank_(own_rank),
      peer_(peer),
      scheduled_(scheduled),
      traffic_(traffic),
      deliver_(std::move(deliver)) {}

void Link::check(int code) const {
  if (code != MPI_SUCCESS) end_job(own_rank_, peer_, error_text(code));
}

void Link::start(network::Pool& pool) {
  pool_ = &pool;
  for (std::size_t slot = 0; slot < kAhead; ++slot) {
    buffers_[slot] = {own_.take(sizeof(Frame) + kShort), 0, sizeof(Frame) + kShort};
    expect_frame(slot);
  }
}

void Link::expect_frame(std::size_t slot) {
  const Slice& buffer = buffers_[slot];
  check(MPI_Irecv(buffer.data(), static_cast<int>(buffer.bytes), MPI_BYTE, peer_, kFrameTag, comm_,
                  &frames_[slot]));
}

void Link::send(const Frame& frame, const Slice& payload, bool at_once) {
  const bool is_short = payload.bytes <= kShort;
  const std::size_t bytes = sizeof(Frame) + (is_short ? payload.bytes : 0);
  Sent first{{own_.take(bytes), 0, bytes}, true, frame.kind == FrameKind::leave};
  if (!first.part.memory) throw Error("no memory left to send a frame");
  std::memcpy(first.part.data(), &frame, sizeof(frame));
  if (is_short && payload.bytes > 0)
    std::memcpy(first.part.data() + sizeof(frame), payload.data(), payload.bytes);
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    sent_frames_.sent.push_back(std::move(first));
    ++sent_frames_.released;
    for (std::size_t at = 0; !is_short && at < payload.bytes; at += kPiece) {
      const std::size_t piece = std::min(kPiece, payload.bytes - at);
      sent_payloads_.sent.push_back(
          {{payload.memory, payload.offset + at, piece}, at + piece == payload.bytes});
    }
    bytes_sent_ += sizeof(Frame) + payload.bytes;
    if (at_once) issue(sent_frames_);
  }
  if (is_short) return;
  if (scheduled_)
    traffic_.outgoing_ready(peer_, frame);
  else
    send_held(1, at_once);
}

void Link::send_held(std::size_t payloads, bool at_once) {
  const std::lock_guard lock(mutex_);
  for (Queue& queue = sent_payloads_; payloads > 0 && queue.released < queue.sent.size(); ++queue.released)
    if (queue.sent[queue.released].last) --payloads;
  if (at_once && !left_) issue(sent_payloads_);
}

void Link::issue(Queue& queue) {
  while (queue.issued < queue.released && (queue.bytes < kWindow || !scheduled_)) {
    Sent& sent = queue.sent[queue.issued++];
    queue.bytes += sent.part.bytes;
    const auto start =
        sent.synchronous ? MPI_Issend : MPI_Isend;  // synchronous: completes only when it was received
    check(start(sent.part.data(), static_cast<int>(sent.part.bytes), MPI_BYTE, peer_, queue.tag, comm_,
                &sent.request));
  }
}

void Link::leave() {
  left_ = true;
  traffic_.outgoing_lost(peer_);
  traffic_.incoming_lost(peer_);
}

bool Link::acknowledged() const {
  const std::lock_guard lock(mutex_);
  return left_ || (sent_frames_.sent.empty() && sent_payloads_.sent.empty());
}

std::size_t Link::bytes_in_flight() const {
  const std::lock_guard lock(mutex_);
  return left_ ? 0 : bytes_sent_;
}

void Link::collect(MPI_Request* heads) {
  post_receives();
  heads[kFrame] = frames_[next_];
  heads[kPayload] = expected_.empty() || expected_.front().pieces.empty() ? MPI_REQUEST_NULL
                                                                          : expected_.front().pieces.front();
  const std::lock_guard lock(mutex_);
  issue(sent_frames_);
  issue(sent_payloads_);
  sending_ = (sent_frames_.issued > 0 || sent_payloads_.issued > 0) && !left_;
  heads[kSentFrame] = sent_frames_.head();
  heads[kSentPayload] = sent_payloads_.head();
}

void Link::ended(Head head) {
  bool payload_is_gone = false;
  switch (head) {
    case kFrame:
      take_frame();
      break;
    case kPayload:
      expected_.front().pieces.pop_front();
      break;
    case kSentFrame:
    case kSentPayload: {
      Queue& queue = head == kSentFrame ? sent_frames_ : sent_payloads_;
      const std::lock_guard lock(mutex_);
      const Sent& sent = queue.sent.front();
      bytes_sent_ -= sent.part.bytes;
      payload_is_gone = head == kSentPayload && sent.last;
      queue.pop();
      break;
    }
  }
  if (payload_is_gone && scheduled_) traffic_.outgoing_done(peer_);
  deliver_ready();
}

void Link::take_frame() {
  const std::byte* data = buffers_[next_].data();
  Expected expected;
  std::memcpy(&expected.frame, data, sizeof(Frame));
  const std::size_t bytes = expected.frame.message.bytes;
  expected.payload.bytes = bytes;
  if (bytes > 0 && bytes <= kShort) {
    expected.payload.memory = pool_->take(bytes);
    if (!expected.payload.memory) expected.payload.memory = own_.take(bytes);
    std::memcpy(expected.payload.data(), data + sizeof(Frame), bytes);
  }
  const Frame frame = expected.frame;
  // A heartbeat must not wait behind long payloads.
  if (frame.kind == FrameKind::heartbeat) deliver_(peer_, frame, expected.payload);
  expected_.push_back(std::move(expected));
  expect_frame(next_);
  next_ = (next_ + 1) % kAhead;
  if (bytes > kShort && scheduled_) traffic_.incoming_ready(peer_, frame);
  post_receives();
}

// Posts receives of long payloads in order. If no memory is left, the rest waits until some is freed.
void Link::post_receives() {
  for (; posted_ < expected_.size(); ++posted_) {
    Expected& expected = expected_[posted_];
    Slice& payload = expected.payload;
    if (payload.bytes <= kShort) continue;
    if (scheduled_ && released_ == 0) return;
    payload.memory = pool_->take(payload.bytes);
    if (!payload.memory) return;
    if (scheduled_) --released_;
    for (std::size_t at = 0; at < payload.bytes; at += kPiece)
      check(MPI_Irecv(payload.data() + at, static_cast<int>(std::min(kPiece, payload.bytes - at)), MPI_BYTE,
                      peer_, kPayloadTag, comm_, &expected.pieces.emplace_back()));
  }
}

void Link::deliver_ready() {
  while (posted_ > 0 && expected_.front().pieces.empty()) {
    Expected first = std::move(expected_.front());
    expected_.pop_front();
    --posted_;
    const bool was_long = first.payload.bytes > kShort;
    if (first.frame.kind != FrameKind::heartbeat) deliver_(peer_, first.frame, std::move(first.payload));
    if (was_long && scheduled_) traffic_.incoming_done(peer_);
  }
}

void Link::stop() {
  for (std::size_t slot = 0; slot < kAhead; ++slot) abandon(frames_[slot], buffers_[slot].memory, true);
  for (const Expected& expected : expected_)
    for (const MPI_Request& piece : expected.pieces) abandon(piece, expected.payload.memory, true);
  expected_.clear();
  const std::lock_guard lock(mutex_);
  for (Queue* queue : {&sent_frames_, &sent_payloads_}) {
    for (const Sent& sent : queue->sent) abandon(sent.request, sent.part.memory, false);
    queue->sent.clear();
    queue->released = queue->issued = queue->bytes = 0;
  }
  left_ = true;
}

}  // namespace starling::fabric::mpi_engine

#include "starling/fabric/mpi/link.h"

#include <algorithm>
#include <cstring>

#include "starling/base/error.h"
#include "starling/fabric/mpi/engine.h"

namespace starling::mpi_engine {
namespace {

using network::Frame;
using network::FrameKind;
using network::Memory;
using network::Slice;

// Bytes to a peer on another host that MPI knows of at once. Two ranks that exchange blocks share a
// connection, on which "there is room" for the other's waits behind ours: with all of a block on it, Open MPI
// sends first one way, then the other.
constexpr std::size_t kWindow = std::size_t{2} << 20;
constexpr std::size_t kPiece = std::size_t{256} << 20;  // bytes: MPI counts in ints

// Ends what may never end by itself. Memory that MPI may still use is never given back.
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

Link::Link(MPI_Comm comm, Rank me, Rank peer, bool takes_turns, network::Traffic& traffic, Deliver deliver)
    : comm_(comm),
      me_(me),
      peer_(peer),
      takes_turns_(takes_turns),
      traffic_(traffic),
      deliver_(std::move(deliver)) {}

void Link::check(int code) const {
  if (code != MPI_SUCCESS) end_job(me_, peer_, error_text(code));
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
  if (!first.part.memory) throw Error("no memory left for a frame");
  std::memcpy(first.part.data(), &frame, sizeof(frame));
  if (is_short && payload.bytes > 0)
    std::memcpy(first.part.data() + sizeof(frame), payload.data(), payload.bytes);
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    sent_frames_.sent.push_back(std::move(first));
    ++sent_frames_.allowed;
    for (std::size_t at = 0; !is_short && at < payload.bytes; at += kPiece) {
      const std::size_t piece = std::min(kPiece, payload.bytes - at);
      sent_payloads_.sent.push_back(
          {{payload.memory, payload.offset + at, piece}, at + piece == payload.bytes});
    }
    bytes_sent_ += sizeof(Frame) + payload.bytes;
    if (at_once) issue(sent_frames_);
  }
  if (is_short) return;
  if (takes_turns_)
    traffic_.send(traffic_.out.add(peer_, frame));
  else
    send_held(1, at_once);
}

void Link::send_held(std::size_t payloads, bool at_once) {
  const std::lock_guard lock(mutex_);
  for (Queue& queue = sent_payloads_; payloads > 0 && queue.allowed < queue.sent.size(); ++queue.allowed)
    if (queue.sent[queue.allowed].last) --payloads;
  if (at_once && !left_) issue(sent_payloads_);
}

void Link::issue(Queue& queue) {
  while (queue.issued < queue.allowed && (queue.bytes < kWindow || !takes_turns_)) {
    Sent& sent = queue.sent[queue.issued++];
    queue.bytes += sent.part.bytes;
    const auto start = sent.synchronous ? MPI_Issend : MPI_Isend;  // the last one is known to be there
    check(start(sent.part.data(), static_cast<int>(sent.part.bytes), MPI_BYTE, peer_, queue.tag, comm_,
                &sent.request));
  }
}

void Link::leave() {
  left_ = true;
  traffic_.send(traffic_.out.lost(peer_));
  traffic_.receive(traffic_.in.lost(peer_));
}

bool Link::acknowledged() const {
  const std::lock_guard lock(mutex_);
  return left_ || (sent_frames_.sent.empty() && sent_payloads_.sent.empty());
}

std::size_t Link::bytes_on_the_way() const {
  const std::lock_guard lock(mutex_);
  return left_ ? 0 : bytes_sent_;
}

void Link::collect(MPI_Request* heads) {
  place();
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
  if (payload_is_gone && takes_turns_) traffic_.send(traffic_.out.done(peer_));
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
  // Who waits behind a long payload is heard all the same.
  if (frame.kind == FrameKind::heartbeat) deliver_(peer_, frame, expected.payload);
  expected_.push_back(std::move(expected));
  expect_frame(next_);
  next_ = (next_ + 1) % kAhead;
  if (bytes > kShort && takes_turns_) traffic_.receive(traffic_.in.add(peer_, frame));
  place();
}

// In order. Where no memory is left, the rest waits until some is given back.
void Link::place() {
  for (; placed_ < expected_.size(); ++placed_) {
    Expected& expected = expected_[placed_];
    Slice& payload = expected.payload;
    if (payload.bytes <= kShort) continue;
    if (takes_turns_ && allowed_ == 0) return;
    payload.memory = pool_->take(payload.bytes);
    if (!payload.memory) return;
    if (takes_turns_) --allowed_;
    for (std::size_t at = 0; at < payload.bytes; at += kPiece)
      check(MPI_Irecv(payload.data() + at, static_cast<int>(std::min(kPiece, payload.bytes - at)), MPI_BYTE,
                      peer_, kPayloadTag, comm_, &expected.pieces.emplace_back()));
  }
}

void Link::deliver_ready() {
  while (placed_ > 0 && expected_.front().pieces.empty()) {
    Expected first = std::move(expected_.front());
    expected_.pop_front();
    --placed_;
    const bool was_long = first.payload.bytes > kShort;
    if (first.frame.kind != FrameKind::heartbeat) deliver_(peer_, first.frame, std::move(first.payload));
    if (was_long && takes_turns_) traffic_.receive(traffic_.in.done(peer_));
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
    queue->allowed = queue->issued = queue->bytes = 0;
  }
  left_ = true;
}

}  // namespace starling::mpi_engine

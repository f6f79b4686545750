#include "starling/fabric/c10d/link.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "starling/base/error.h"
#include "starling/record/log.h"

namespace starling::fabric::c10d_engine {
namespace {

using network::Frame;
using network::FrameKind;
using network::Slice;

constexpr std::chrono::hours kForever{24 * 365};
constexpr int kFrameTag = 0x53540001;  // distinct from other uses of the group
constexpr int kPayloadTag = 0x53540002;
constexpr std::uint64_t kAcknowledgeEvery = 4;        // short frames: acknowledge at least this often
constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes of a long payload
constexpr std::chrono::milliseconds kStandstill{50};

std::vector<Slice> pieces_of(const Slice& payload) {
  std::vector<Slice> pieces;
  for (std::size_t at = 0; at < payload.bytes; at += kPiece)
    pieces.push_back({payload.memory, payload.offset + at, std::min(kPiece, payload.bytes - at)});
  return pieces;
}

std::vector<at::Tensor> as_tensors(const Slice& part) {
  return {at::from_blob(part.data(), {static_cast<std::int64_t>(part.bytes)},
                        at::TensorOptions().dtype(at::kByte))};
}

}  // namespace

void Link::start(network::Transport::Receiver& receiver, network::Pool& pool) {
  receiver_ = &receiver;
  pool_ = &pool;
  for (Slice& buffer : buffers_) buffer = {pool.take(sizeof(Frame) + kShort), 0, sizeof(Frame) + kShort};
  frame_thread_ = std::thread([this] { receive_frames(); });
}

// Posts a receive for the next frame. False if the link is stopping.
bool Link::expect_frame(std::size_t slot) {
  const std::lock_guard lock(frames_mutex_);
  if (stopping_) return false;
  auto tensors = as_tensors(buffers_[slot]);
  frames_[slot] = frames_group_.recv(tensors, in_group_, kFrameTag);
  return true;
}

bool Link::send(const Frame& given, const Slice& payload) {
  const bool is_short = payload.bytes <= kShort;
  {
    const std::lock_guard lock(send_mutex_);
    if (lost_ || sending_stopped_) return false;
    Frame frame = given;
    acknowledged_to_peer_ = frame.acknowledged = received_.load();
    Sent sent;
    const std::size_t bytes = sizeof(Frame) + (is_short ? payload.bytes : 0);
    sent.frame = {pool_->take(bytes), 0, bytes};
    if (!sent.frame.memory) throw Error("no memory left to send a frame");
    std::memcpy(sent.frame.data(), &frame, sizeof(frame));
    if (is_short && payload.bytes > 0)
      std::memcpy(sent.frame.data() + sizeof(frame), payload.data(), payload.bytes);
    if (!is_short) sent.payload = payload;
    start_send(frames_group_, sent.frame, kFrameTag, sent.works);
    bytes_sent_ += sent.frame.bytes + sent.payload.bytes;
    sent.unordered = frame.kind == FrameKind::received || frame.kind == FrameKind::heartbeat;
    if (!sent.unordered) ++open_;
    if (!is_short) held_.push_back(acknowledged_ + sent_.size());
    sent_.push_back(std::move(sent));
  }
  if (!is_short) traffic_.outgoing_ready(peer_, given);
  return true;
}

// False if the peer is gone; the receiving threads notice that, too.
bool Link::start_send(Group& group, const Slice& part, int tag, std::vector<WorkPtr>& works) {
  try {
    auto tensors = as_tensors(part);
    works.push_back(group.send(tensors, in_group_, tag));
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::debug, "c10d: " + std::string(error.what()));
    return false;
  }
}

void Link::send_held(std::size_t payloads) {
  const std::lock_guard lock(send_mutex_);
  for (; payloads > 0 && !held_.empty(); --payloads) {
    Sent& sent = sent_[static_cast<std::size_t>(held_.front() - acknowledged_)];
    held_.pop_front();
    for (const Slice& piece : pieces_of(sent.payload))
      if (!start_send(outgoing_group_, piece, kPayloadTag, sent.works)) break;
  }
}

void Link::acknowledge(std::uint64_t frames) {
  std::deque<Sent> done;
  {
    const std::lock_guard lock(send_mutex_);
    for (; acknowledged_ < frames && !sent_.empty(); ++acknowledged_) {
      bytes_sent_ -= sent_.front().frame.bytes + sent_.front().payload.bytes;
      if (!sent_.front().unordered) --open_;
      done.push_back(std::move(sent_.front()));
      sent_.pop_front();
    }
  }
  for (Sent& sent : done) {
    // Returns at once: the peer has received everything.
    for (const WorkPtr& work : sent.works) work->wait(kForever);
    if (sent.payload.memory) traffic_.outgoing_done(peer_);
  }
}

bool Link::acknowledged() const {
  const std::lock_guard lock(send_mutex_);
  return lost_ || open_ == 0;
}

std::size_t Link::bytes_in_flight() const {
  const std::lock_guard lock(send_mutex_);
  return lost_ ? 0 : bytes_sent_;
}

void Link::receive_frames() {
  bool broken = false;
  try {
    // Here rather than in start(): recv() throws for a peer that has died since it joined.
    bool expecting = true;
    for (std::size_t slot = 0; slot < kAhead; ++slot) expecting = expecting && expect_frame(slot);
    for (std::size_t slot = 0; expecting; slot = (slot + 1) % kAhead) {
      if (!frames_[slot]->wait(kForever) || stopping_) break;
      Frame frame;
      std::memcpy(&frame, buffers_[slot].data(), sizeof(frame));
      receive(frame, buffers_[slot].data() + sizeof(frame));
      left_ = frame.kind == FrameKind::leave;
      if (left_ || !expect_frame(slot)) break;
    }
  } catch (const std::exception& error) {
    log(LogLevel::debug, "c10d: " + std::string(error.what()));
    broken = true;
  }
  if (!payload_thread_.joinable()) {
    lose();
    return;
  }
  {
    const std::lock_guard lock(expected_mutex_);
    no_more_ = true;
    broken_ = broken_ || broken;
  }
  expected_changed_.notify_all();
  if (broken) end_waits();
}

// Gloo does not wake a receive whose payload was incomplete when the sender died: aborts it. Payloads that
// have arrived completely are delivered first.
void Link::end_waits() {
  std::unique_lock lock(expected_mutex_);
  for (std::uint64_t before = received_;
       !expected_changed_.wait_for(lock, kStandstill, [&] { return lost_.load(); });)
    if (std::exchange(before, received_.load()) == before)
      for (const Expected& expected : expected_)
        for (const WorkPtr& work : expected.works) work->abort();
}

void Link::receive(const Frame& frame, const std::byte* payload) {
  acknowledge(frame.acknowledged);
  const bool is_long = frame.message.bytes > kShort;
  bool queued = false;  // an earlier frame is not delivered yet
  Expected expected{frame, {nullptr, 0, frame.message.bytes}, is_long, {}};
  if (expected.payload.bytes > 0 && !is_long) {
    expected.payload.memory = pool_->take(expected.payload.bytes);
    if (!expected.payload.memory) throw Error("no memory left for a received message");
    std::memcpy(expected.payload.data(), payload, expected.payload.bytes);
  }
  // A heartbeat must not wait behind long payloads.
  if (frame.kind == FrameKind::heartbeat) receiver_->arrived(peer_, frame, expected.payload);
  {
    const std::lock_guard lock(expected_mutex_);
    queued = is_long || !expected_.empty();
    if (queued) {
      expected_.push_back(std::move(expected));
      if (!payload_thread_.joinable()) payload_thread_ = std::thread([this] { receive_payloads(); });
      expected_changed_.notify_all();
    }
  }
  if (is_long)
    traffic_.incoming_ready(peer_, frame);
  else if (!queued)
    deliver(expected);
}

void Link::receive_held(std::size_t payloads) {
  const std::lock_guard lock(expected_mutex_);
  for (Expected& expected : expected_) {
    if (payloads == 0 || stopping_ || broken_) break;
    if (!expected.held) continue;
    --payloads;
    try {
      expected.payload.memory = pool_->take(expected.payload.bytes);
      if (!expected.payload.memory) throw Error("no memory left for a received message");
      for (const Slice& piece : pieces_of(expected.payload)) {
        auto tensors = as_tensors(piece);
        expected.works.push_back(incoming_group_.recv(tensors, in_group_, kPayloadTag));
      }
    } catch (const std::exception& error) {
      log(LogLevel::debug, "c10d: " + std::string(error.what()));
      broken_ = true;
      break;
    }
    expected.held = false;
  }
  expected_changed_.notify_all();
}

// The first frame stays in the queue until it has been delivered: only then may the frame thread deliver
// directly.
void Link::receive_payloads() {
  try {
    for (;;) {
      std::unique_lock lock(expected_mutex_);
      expected_changed_.wait(lock, [&] {
        return broken_ || stopping_ || (expected_.empty() ? no_more_ : !expected_.front().held);
      });
      if (expected_.empty() || expected_.front().held) break;
      Expected& first = expected_.front();
      const std::vector<WorkPtr> works = first.works;
      lock.unlock();
      if (!complete(works, first.payload.bytes)) break;
      deliver(first);
      lock.lock();
      expected_.pop_front();
    }
  } catch (const std::exception& error) {
    log(LogLevel::debug, "c10d: " + std::string(error.what()));
  }
  lose();
}

bool Link::complete(const std::vector<WorkPtr>& works, std::size_t bytes) {
  for (const WorkPtr& work : works) {
    if (!work->wait(kForever) || stopping_) return false;
    const std::size_t piece = std::min(kPiece, bytes);
    bytes_received_ += piece;
    bytes -= piece;
  }
  return true;
}

void Link::deliver(Expected& expected) {
  const FrameKind kind = expected.frame.kind;
  const bool was_long = !expected.works.empty();
  if (kind != FrameKind::heartbeat) receiver_->arrived(peer_, expected.frame, std::move(expected.payload));
  ++received_;
  if (was_long) traffic_.incoming_done(peer_);
  if (kind == FrameKind::received) return;
  if (!was_long && kind != FrameKind::leave && received_ - acknowledged_to_peer_ < kAcknowledgeEvery) return;
  Frame acknowledgement;
  acknowledgement.kind = FrameKind::received;
  send(acknowledgement, {});
}

void Link::lose() {
  {
    const std::lock_guard lock(send_mutex_);
    lost_ = true;
    held_.clear();
    if (left_) sent_.clear();
  }
  traffic_.outgoing_lost(peer_);
  traffic_.incoming_lost(peer_);
  {
    const std::lock_guard lock(expected_mutex_);
    expected_changed_.notify_all();
  }
  if (!stopping_) receiver_->gone(peer_);
}

// Requires send_mutex_.
void Link::abandon_sent() {
  acknowledged_ += sent_.size();
  std::move(sent_.begin(), sent_.end(), std::back_inserter(abandoned_));
  sent_.clear();
  held_.clear();
  open_ = bytes_sent_ = 0;
}

network::Transport::Backlog Link::stop_sending() {
  network::Transport::Backlog backlog;
  {
    const std::lock_guard lock(send_mutex_);
    sending_stopped_ = true;
    backlog.first = acknowledged_;
    for (const Sent& sent : sent_) {
      Frame frame;
      std::memcpy(&frame, sent.frame.data(), sizeof(frame));
      const Slice inline_payload{sent.frame.memory, sizeof(frame), sent.frame.bytes - sizeof(frame)};
      backlog.frames.push_back({frame, sent.payload.memory ? sent.payload : inline_payload});
    }
    abandon_sent();
  }
  traffic_.outgoing_lost(peer_);
  return backlog;
}

std::uint64_t Link::stop_receiving() {
  stop();
  traffic_.incoming_lost(peer_);
  return received_;
}

void Link::abandon_peer() {
  {
    const std::lock_guard lock(send_mutex_);
    abandon_sent();
    if (lost_) abandoned_.clear();
  }
  traffic_.outgoing_lost(peer_);
  traffic_.incoming_lost(peer_);
}

void Link::stop() {
  {
    const std::lock_guard lock(frames_mutex_);
    if (stopping_.exchange(true)) return;
    for (const WorkPtr& work : frames_)
      if (work) work->abort();
  }
  if (frame_thread_.joinable()) frame_thread_.join();
  {
    const std::lock_guard lock(expected_mutex_);
    no_more_ = true;
    for (const Expected& expected : expected_)
      for (const WorkPtr& work : expected.works) work->abort();
  }
  expected_changed_.notify_all();
  if (payload_thread_.joinable()) payload_thread_.join();
}

}  // namespace starling::fabric::c10d_engine

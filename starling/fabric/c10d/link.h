#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/turns.h"
#include "starling/fabric/network/wire.h"

namespace starling::c10d_engine {

/// One peer. Short payloads travel with their frame into buffers that are always ready;
/// for a long one a receive of its own is posted as soon as its frame is here, so that many are on their way
/// at once, in pieces whose arrival shows that it moves. A group cannot wait for a while only (it would close
/// its connections): one thread waits for frames, one for long payloads, and what was sent is known to be
/// gone when the peer says so.
class Link {
 public:
  /// Long payloads for the peer go through `there`, those from it through `back`. The groups may lack some
  /// ranks: in them, the peer's number is `in_group`.
  Link(Group& frames, Group& there, Group& back, Rank peer, Rank in_group, network::Traffic& traffic)
      : talk_(frames), there_(there), back_(back), peer_(peer), in_group_(in_group), traffic_(traffic) {}
  ~Link() { stop(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void start(network::Wire::Receiver& receiver, network::Pool& pool);
  /// False where nothing leaves any more.
  bool send(const network::Frame& frame, const network::Slice& payload);
  /// So many of the long payloads that wait may leave, or come in.
  void send_held(std::size_t payloads);
  void receive_held(std::size_t payloads);
  bool acknowledged() const;
  std::size_t bytes_on_the_way() const;
  std::uint64_t bytes_received() const { return bytes_received_; }
  /// See Wire.
  network::Wire::Backlog cut();
  std::uint64_t end_receiving();
  void give_up();
  void stop();

 private:
  static constexpr std::size_t kAhead = 8;  // receives that wait for frames
  static constexpr std::size_t kShort = (std::size_t{16} << 10) - sizeof(network::Frame);  // bytes of payload

  /// A frame that waits for its payload, or for those before it.
  struct Expected {
    network::Frame frame;
    network::Slice payload;
    bool held = false;           // until there is room
    std::vector<WorkPtr> works;  // of its pieces; none: it is here
  };
  struct Sent {
    network::Slice frame;
    network::Slice payload;
    std::vector<WorkPtr> works;
    bool aside = false;  // nobody waits for it: a receipt, a heartbeat
  };

  bool hand_over(Group& group, const network::Slice& part, int tag, std::vector<WorkPtr>& works);
  void abandon();
  void receive_frames();
  void receive_payloads();
  void end_waits();
  bool expect_frame(std::size_t slot);
  void take(const network::Frame& frame, const std::byte* payload);
  bool complete(const std::vector<WorkPtr>& works, std::size_t bytes);
  void deliver(Expected& expected);
  void acknowledge(std::uint64_t frames);
  void lose();

  Group& talk_;
  Group& there_;
  Group& back_;
  Rank peer_;
  Rank in_group_;
  network::Traffic& traffic_;
  network::Wire::Receiver* receiver_ = nullptr;
  network::Pool* pool_ = nullptr;

  mutable std::mutex send_mutex_;   // frames go out in the order of their numbers
  std::deque<Sent> sent_;           // not acknowledged yet
  std::deque<std::uint64_t> held_;  // numbers of frames whose payloads wait for their turn
  std::uint64_t acknowledged_ = 0;
  std::size_t open_ = 0;        // of these, those that somebody waits for
  std::size_t bytes_sent_ = 0;  // of these
  std::deque<Sent> abandoned_;  // Gloo may still read it
  bool cut_ = false;

  std::mutex frames_mutex_;  // of the waits that stop() ends
  std::array<network::Slice, kAhead> buffers_;
  std::array<WorkPtr, kAhead> frames_;
  std::mutex expected_mutex_;
  std::condition_variable expected_changed_;
  std::deque<Expected> expected_;
  bool no_more_ = false;
  bool broken_ = false;
  std::atomic<std::uint64_t> received_{0};        // frames with their payloads
  std::atomic<std::uint64_t> told_{0};            // of these the peer knows
  std::atomic<std::uint64_t> bytes_received_{0};  // of long payloads
  bool left_ = false;                             // the peer has said so

  std::atomic<bool> lost_{false};
  std::atomic<bool> stopping_{false};
  std::thread frame_thread_;
  std::thread payload_thread_;
};

}  // namespace starling::c10d_engine

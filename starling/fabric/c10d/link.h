#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/send_scheduler.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric::c10d_engine {

/// The connection to one peer. Short payloads travel with their frame into preposted receives. For a long
/// payload, receives of its pieces are posted once its frame has arrived and the traffic control permits it,
/// so that many are in flight at once and the arrival of pieces shows progress. Gloo cannot wait with a
/// timeout (it would close its connections): one thread waits for frames, another for long payloads, and a
/// send is complete when the peer acknowledges it. Owned by C10dTransport. Thread-safe after start().
class Link {
 public:
  /// Long payloads to the peer use the group `outgoing`, those from it `incoming`. `in_group` is the peer's
  /// rank in the groups, which may lack some ranks of the job.
  Link(Group& frames, Group& outgoing, Group& incoming, Rank peer, Rank in_group,
       network::TrafficControl& traffic)
      : frames_group_(frames),
        outgoing_group_(outgoing),
        incoming_group_(incoming),
        peer_(peer),
        in_group_(in_group),
        traffic_(traffic) {}
  ~Link() { stop(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void start(network::Transport::Receiver& receiver, network::Pool& pool);
  /// False if nothing is sent any more.
  bool send(const network::Frame& frame, const network::Slice& payload);
  /// Sends, or receives, this many of the long payloads that are held back.
  void send_held(std::size_t payloads);
  void receive_held(std::size_t payloads);
  bool acknowledged() const;
  std::size_t bytes_in_flight() const;
  std::uint64_t bytes_received() const { return bytes_received_; }
  /// See network::Transport.
  network::Transport::Backlog stop_sending();
  std::uint64_t stop_receiving();
  void abandon_peer();
  void stop();

 private:
  static constexpr std::size_t kAhead = 8;  // preposted receives of frames
  static constexpr std::size_t kShort = (std::size_t{16} << 10) - sizeof(network::Frame);  // bytes of payload

  /// A received frame that waits for its payload, or for earlier frames.
  struct Expected {
    network::Frame frame;
    network::Slice payload;
    bool held = false;           // until the traffic control releases it
    std::vector<WorkPtr> works;  // of its pieces; empty: the payload has arrived
  };
  struct Sent {
    network::Slice frame;
    network::Slice payload;
    std::vector<WorkPtr> works;
    bool unordered = false;  // acknowledgement or heartbeat: no call waits for it
  };

  bool start_send(Group& group, const network::Slice& part, int tag, std::vector<WorkPtr>& works);
  void abandon_sent();
  void receive_frames();
  void receive_payloads();
  void end_waits();
  bool expect_frame(std::size_t slot);
  void receive(const network::Frame& frame, const std::byte* payload);
  bool complete(const std::vector<WorkPtr>& works, std::size_t bytes);
  void deliver(Expected& expected);
  void acknowledge(std::uint64_t frames);
  void lose();

  Group& frames_group_;
  Group& outgoing_group_;
  Group& incoming_group_;
  Rank peer_;
  Rank in_group_;
  network::TrafficControl& traffic_;
  network::Transport::Receiver* receiver_ = nullptr;
  network::Pool* pool_ = nullptr;

  mutable std::mutex send_mutex_;   // frames are sent in the order of their numbers
  std::deque<Sent> sent_;           // not acknowledged yet
  std::deque<std::uint64_t> held_;  // numbers of frames whose payloads are not released yet
  std::uint64_t acknowledged_ = 0;
  std::size_t open_ = 0;        // of sent_, without those that no call waits for
  std::size_t bytes_sent_ = 0;  // of sent_
  std::deque<Sent> abandoned_;  // kept, because Gloo may still read them
  bool sending_stopped_ = false;

  std::mutex frames_mutex_;  // guards frames_, which stop() aborts
  std::array<network::Slice, kAhead> buffers_;
  std::array<WorkPtr, kAhead> frames_;
  std::mutex expected_mutex_;
  std::condition_variable expected_changed_;
  std::deque<Expected> expected_;
  bool no_more_ = false;
  bool broken_ = false;
  std::atomic<std::uint64_t> received_{0};              // frames with their payloads
  std::atomic<std::uint64_t> acknowledged_to_peer_{0};  // how many of them the peer knows of
  std::atomic<std::uint64_t> bytes_received_{0};        // of long payloads
  bool left_ = false;                                   // the peer has sent its last frame

  std::atomic<bool> lost_{false};
  std::atomic<bool> stopping_{false};
  std::thread frame_thread_;
  std::thread payload_thread_;
};

}  // namespace starling::fabric::c10d_engine

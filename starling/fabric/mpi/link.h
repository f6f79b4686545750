#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mpi.h>
#include <mutex>
#include <vector>

#include "starling/fabric/network/send_scheduler.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric::mpi_engine {

/// The connection to one peer of a communicator. Short payloads travel with their frame into preposted
/// receives. For a long payload, receives are posted once its frame has arrived and the traffic control
/// permits it, so that many are in flight at once. Transfers within one host are not scheduled. Of each kind
/// of request only the oldest is tested, since they complete in order or wait for each other. Owned by
/// MpiTransport.
class Link {
 public:
  enum Head : std::size_t { kFrame, kPayload, kSentFrame, kSentPayload };
  static constexpr std::size_t kHeads = 4;
  using Deliver = std::function<void(Rank from, const network::Frame& frame, network::Slice payload)>;

  Link(MPI_Comm comm, Rank own_rank, Rank peer, bool scheduled, network::TrafficControl& traffic,
       Deliver deliver);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void start(network::Pool& pool);
  /// From any thread. Starts the MPI operation only if `at_once`; otherwise the progress thread does.
  void send(const network::Frame& frame, const network::Slice& payload, bool at_once);
  /// Releases this many of the long payloads that are held back; `at_once` as above.
  void send_held(std::size_t payloads, bool at_once);
  bool acknowledged() const;
  std::size_t bytes_in_flight() const;

  /// The rest is for the thread that makes progress. Collects the requests to test now, kHeads of them.
  void collect(MPI_Request* heads);
  /// Releases this many of the announced long payloads.
  void receive_held(std::size_t payloads) { released_ += payloads; }
  /// The tested request has completed.
  void ended(Head head);
  /// The peer has left: nothing more is sent or received.
  void leave();
  bool left() const { return left_; }
  /// Whether a transfer is unfinished, which needs progress on both sides.
  bool busy() const { return posted_ > 0 || sending_; }
  void stop();

 private:
  static constexpr int kFrameTag = 1;
  static constexpr int kPayloadTag = 2;
  static constexpr std::size_t kAhead = 8;  // preposted receives of frames
  static constexpr std::size_t kShort = (std::size_t{16} << 10) - sizeof(network::Frame);  // bytes of payload

  /// A received frame that waits for its payload, or for earlier frames.
  struct Expected {
    network::Frame frame;
    network::Slice payload;
    std::deque<MPI_Request> pieces;  // incomplete receives; none before the payload has memory
  };
  struct Sent {
    network::Slice part;
    bool last = true;  // of its payload
    bool synchronous = false;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// Outgoing transfers of one tag, in order.
  struct Queue {
    const int tag;
    std::deque<Sent> sent{};
    std::size_t released = 0;  // how many may be sent
    std::size_t issued = 0;    // how many were passed to MPI
    std::size_t bytes = 0;     // of the issued ones
    void pop() {
      bytes -= sent.front().part.bytes;
      sent.pop_front();
      --released;
      --issued;
    }
    MPI_Request head() const { return issued == 0 ? MPI_REQUEST_NULL : sent.front().request; }
  };

  void expect_frame(std::size_t slot);
  void take_frame();
  void post_receives();
  void deliver_ready();
  void issue(Queue& queue);
  void check(int code) const;

  const MPI_Comm comm_;
  const Rank own_rank_;
  const Rank peer_;
  const bool scheduled_;
  network::TrafficControl& traffic_;
  const Deliver deliver_;
  network::Pool* pool_ = nullptr;
  network::Pool own_{SIZE_MAX};  // for short payloads, without a limit
  std::atomic<bool> left_{false};

  std::array<network::Slice, kAhead> buffers_;
  std::array<MPI_Request, kAhead> frames_;
  std::size_t next_ = 0;  // the slot of the next frame
  std::deque<Expected> expected_;
  std::size_t posted_ = 0;    // how many have memory, and receives if needed
  std::size_t released_ = 0;  // how many long ones may be received
  bool sending_ = false;

  mutable std::mutex mutex_;
  Queue sent_frames_{kFrameTag};
  Queue sent_payloads_{kPayloadTag};
  std::size_t bytes_sent_ = 0;
};

}  // namespace starling::fabric::mpi_engine

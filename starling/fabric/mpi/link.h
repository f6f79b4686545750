#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mpi.h>
#include <mutex>
#include <vector>

#include "starling/fabric/network/turns.h"
#include "starling/fabric/network/wire.h"

namespace starling::mpi_engine {

/// One peer of a communicator. Short payloads travel with their frame into buffers that are always ready; for
/// a long one receives of its own are posted once its frame is here and it is its turn, so that many are on
/// their way at once. What goes through the memory of one host takes no turns. Of each kind of request the
/// oldest is tested only: they end in order, or wait for each other.
class Link {
 public:
  enum Head : std::size_t { kFrame, kPayload, kSentFrame, kSentPayload };
  static constexpr std::size_t kHeads = 4;
  using Deliver = std::function<void(Rank from, const network::Frame& frame, network::Slice payload)>;

  Link(MPI_Comm comm, Rank me, Rank peer, bool takes_turns, network::Traffic& traffic, Deliver deliver);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void start(network::Pool& pool);
  /// From any thread. Nothing is told to MPI yet unless `at_once`.
  void send(const network::Frame& frame, const network::Slice& payload, bool at_once);
  /// So many of the long payloads that wait may leave; the same.
  void send_held(std::size_t payloads, bool at_once);
  bool acknowledged() const;
  std::size_t bytes_on_the_way() const;

  /// The rest is for the thread that makes progress: the requests to test now, kHeads of them.
  void collect(MPI_Request* heads);
  /// So many of the long payloads that are announced may come in.
  void receive_held(std::size_t payloads) { allowed_ += payloads; }
  /// The head that was tested has ended.
  void ended(Head head);
  /// The peer sends no more, and need not get anything.
  void leave();
  bool left() const { return left_; }
  /// Something is half done, and needs both sides to go on.
  bool busy() const { return placed_ > 0 || sending_; }
  void stop();

 private:
  static constexpr int kFrameTag = 1;
  static constexpr int kPayloadTag = 2;
  static constexpr std::size_t kAhead = 8;  // receives that wait for frames
  static constexpr std::size_t kShort = (std::size_t{16} << 10) - sizeof(network::Frame);  // bytes of payload

  /// A frame that waits for its payload, or for those before it.
  struct Expected {
    network::Frame frame;
    network::Slice payload;
    std::deque<MPI_Request> pieces;  // still on their way; of a payload without memory, none yet
  };
  struct Sent {
    network::Slice part;
    bool last = true;  // of its payload
    bool synchronous = false;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// What leaves with one tag, in order.
  struct Queue {
    const int tag;
    std::deque<Sent> sent{};
    std::size_t allowed = 0;  // of these may leave
    std::size_t issued = 0;   // of these are known to MPI
    std::size_t bytes = 0;    // of these
    void pop() {
      bytes -= sent.front().part.bytes;
      sent.pop_front();
      --allowed;
      --issued;
    }
    MPI_Request head() const { return issued == 0 ? MPI_REQUEST_NULL : sent.front().request; }
  };

  void expect_frame(std::size_t slot);
  void take_frame();
  void place();
  void deliver_ready();
  void issue(Queue& queue);
  void check(int code) const;

  const MPI_Comm comm_;
  const Rank me_;
  const Rank peer_;
  const bool takes_turns_;
  network::Traffic& traffic_;
  const Deliver deliver_;
  network::Pool* pool_ = nullptr;
  network::Pool own_{SIZE_MAX};  // what is short always finds a place
  std::atomic<bool> left_{false};

  std::array<network::Slice, kAhead> buffers_;
  std::array<MPI_Request, kAhead> frames_;
  std::size_t next_ = 0;  // the slot of the next frame
  std::deque<Expected> expected_;
  std::size_t placed_ = 0;   // of these have memory, and receives where they need any
  std::size_t allowed_ = 0;  // so many long ones may get some
  bool sending_ = false;

  mutable std::mutex mutex_;
  Queue sent_frames_{kFrameTag};
  Queue sent_payloads_{kPayloadTag};
  std::size_t bytes_sent_ = 0;
};

}  // namespace starling::mpi_engine

#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>

#include "starling/fabric/network/transport.h"

namespace starling::fabric::network {

/// The traffic between this rank and a peer through a third rank (the relay), once their connection is
/// broken. Frames keep the order and the numbers that they had on the connection, and are kept until the peer
/// acknowledges them: they are sent again through a new relay, or when the peer reports a gap. Owned by
/// MonitoredTransport. Thread-safe.
class RelayedLink {
 public:
  /// Sends a frame of kind `relay` to a relay; must not block.
  using Send = std::function<void(Rank relay, const Frame& frame, const Slice& payload)>;

  RelayedLink(Rank rank, Rank peer, Pool& pool, Send send)
      : rank_(rank), peer_(peer), pool_(pool), send_(std::move(send)) {}

  /// Starts with the frames that the connection may not have delivered.
  void start(Transport::Backlog backlog);
  /// Queues the frame until start(). False if the peer is lost.
  bool send(const Frame& frame, const Slice& payload);
  /// Without a number: the frame may be lost, and overtakes the others.
  void send_unordered(const Frame& frame, const Slice& payload);
  /// Sends through this rank from now on; -1: holds frames back.
  void use(Rank relay);
  Rank relay() const;
  /// How many frames arrived over the connection before it was abandoned.
  void received_before(std::uint64_t frames);
  /// Takes a frame from a relay; calls `deliver` if it is new and next in order, or unordered.
  void arrived(const Frame& frame, const Slice& payload,
               const std::function<void(const Frame& inner, Slice payload, bool unordered)>& deliver);
  bool acknowledged() const;
  std::size_t bytes() const;
  /// The peer is lost: forgets all frames.
  void drop();

 private:
  struct Item {
    Frame frame;
    Slice payload;
  };
  void send_item(std::uint64_t number, const Item& item);
  void send_all();

  const Rank rank_;
  const Rank peer_;
  Pool& pool_;
  const Send send_;
  mutable std::mutex mutex_;
  bool started_ = false;
  bool dropped_ = false;
  Rank relay_ = -1;
  std::uint64_t first_ = 0;  // the number of the first frame in `kept_`
  std::deque<Item> kept_;
  std::uint64_t received_ = 0;
  bool missing_ = false;  // the last arrival showed that an earlier frame was lost
  std::chrono::steady_clock::time_point resent_{};
};

}  // namespace starling::fabric::network

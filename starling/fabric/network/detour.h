#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>

#include "starling/fabric/network/wire.h"

namespace starling::network {

/// What two ranks send each other through a third one once their connection is broken. Frames go on in the
/// order and with the numbers that they had there, and are kept until the peer has them: with another relay,
/// or where the peer says that one is missing, they are sent again. Thread-safe.
class Detour {
 public:
  /// Sends a frame of kind `relay` to a relay; never blocks.
  using Send = std::function<void(Rank relay, const Frame& frame, const Slice& payload)>;

  Detour(Rank rank, Rank peer, Pool& pool, Send send)
      : rank_(rank), peer_(peer), pool_(pool), send_(std::move(send)) {}

  /// With what the connection has not delivered.
  void start(Wire::Backlog backlog);
  /// Before it was started, frames wait. False once the peer is lost.
  bool send(const Frame& frame, const Slice& payload);
  /// Without a number: may be lost, and overtakes the others.
  void send_aside(const Frame& frame, const Slice& payload);
  /// From now on through this rank; -1: nothing leaves for now.
  void use(Rank relay);
  Rank relay() const;
  /// So many frames came over the connection.
  void received_before(std::uint64_t frames);
  /// What came through a relay: calls `deliver` for what is new and in order.
  void arrived(const Frame& frame, const Slice& payload,
               const std::function<void(const Frame& inner, Slice payload, bool aside)>& deliver);
  bool acknowledged() const;
  std::size_t bytes() const;
  /// The peer is lost.
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
  std::uint64_t first_ = 0;  // the number of what is first in `kept_`
  std::deque<Item> kept_;
  std::uint64_t received_ = 0;
  bool missing_ = false;  // what came last shows that something before it was lost
  std::chrono::steady_clock::time_point resent_{};
};

}  // namespace starling::network

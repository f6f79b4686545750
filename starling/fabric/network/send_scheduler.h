#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "starling/base/types.h"
#include "starling/fabric/network/frame.h"

namespace starling::fabric::network {

/// Decides which long payloads may be in flight, in one direction: from this rank to its peers or from them
/// to it. Payloads of earlier steps go first, whichever peer they belong to. Otherwise a rank that is ahead
/// would divide its link between this step's block and the next one's, and so would a rank that receives the
/// blocks of two steps at once: the rank that waits for the earlier block falls behind, until the whole flock
/// is out of step and half of its links are idle. Senders and receivers use the same order, so that some
/// transfer can always proceed.
///
/// A payload also waits while enough is in flight to the same peer: an engine writes in order, and its
/// control messages (there is room for the peer's payload) must not queue behind many of ours. A peer that
/// has made no progress for long, compared to the duration of a step, does not delay other peers: its host
/// may be stopped.
///
/// Thread-safe.
class SendScheduler {
 public:
  using Clock = std::chrono::steady_clock;
  /// This many further payloads of `peer` may proceed now.
  struct Release {
    Rank peer;
    std::size_t payloads;
  };
  using Releases = std::vector<Release>;

  using Now = std::function<Clock::time_point()>;
  /// Tests pass a clock of their own.
  explicit SendScheduler(Rank size, Now now = &Clock::now)
      : now_(std::move(now)),
        progressed_(static_cast<std::size_t>(size)),
        lost_(static_cast<std::size_t>(size)) {}

  /// Adds a payload behind the peer's others.
  Releases add(Rank peer, const Frame& frame);
  /// The first of the peer's payloads has been transferred.
  Releases done(Rank peer);
  /// The peer is lost: forgets its payloads.
  Releases lost(Rank peer);
  /// To be called from time to time: releases payloads that waited for a peer without progress.
  Releases recheck();

 private:
  struct Transfer {
    Rank peer;
    std::uint64_t order;
    bool ordered;
    bool released;
  };
  Releases release();
  bool may_proceed(const Transfer& transfer, Clock::time_point now) const;
  void update_pace(const Transfer& transfer, Clock::time_point now);
  Clock::duration patience() const;
  Clock::time_point& progressed(Rank peer) { return progressed_[static_cast<std::size_t>(peer)]; }

  const Now now_;
  std::mutex mutex_;
  std::vector<Transfer> transfers_;  // unfinished ones
  std::size_t held_ = 0;             // how many of them are not released
  std::vector<Clock::time_point>
      progressed_;  // when a transfer of the peer last finished, or its first was added
  std::vector<bool> lost_;
  std::uint64_t newest_ = 0;  // the highest order so far
  Clock::time_point newest_came_{};
  Clock::duration pace_{};  // from one order to the next, the recent maximum
};

/// Schedules the long payloads of a rank in both directions. Its transport implements it, and the transport's
/// links, one per peer, call it. Thread-safe.
class TrafficControl {
 public:
  explicit TrafficControl(Rank size) : outgoing_(size), incoming_(size) {}
  virtual ~TrafficControl() = default;
  TrafficControl(const TrafficControl&) = delete;
  TrafficControl& operator=(const TrafficControl&) = delete;

  /// A long payload is ready to be sent, or the peer has announced one.
  void outgoing_ready(Rank peer, const Frame& frame) { send_payloads(outgoing_.add(peer, frame)); }
  void incoming_ready(Rank peer, const Frame& frame) { receive_payloads(incoming_.add(peer, frame)); }
  /// The oldest payload has arrived at the peer, or has come from it.
  void outgoing_done(Rank peer) { send_payloads(outgoing_.done(peer)); }
  void incoming_done(Rank peer) { receive_payloads(incoming_.done(peer)); }
  /// Nothing more goes to the peer, or comes from it.
  void outgoing_lost(Rank peer) { send_payloads(outgoing_.lost(peer)); }
  void incoming_lost(Rank peer) { receive_payloads(incoming_.lost(peer)); }
  /// See SendScheduler::recheck.
  void recheck() {
    send_payloads(outgoing_.recheck());
    receive_payloads(incoming_.recheck());
  }

 private:
  /// Lets the links of these peers send, or receive, their next long payloads. May be called from any thread.
  virtual void send_payloads(const SendScheduler::Releases& released) = 0;
  virtual void receive_payloads(const SendScheduler::Releases& released) = 0;

  SendScheduler outgoing_;
  SendScheduler incoming_;
};

}  // namespace starling::fabric::network

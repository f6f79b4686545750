#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "starling/fabric/network/failure_detector.h"
#include "starling/fabric/network/peer_sockets.h"
#include "starling/fabric/network/relayed_link.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric::network {

/// Wraps an engine's transport with failure detection. Heartbeats carry each rank's view of the others and
/// its status. A peer is gone when the ranks have found it dead (see failure_detector.h), not when one
/// connection breaks: then frames go through another rank. A thread of its own sends heartbeats, evaluates
/// the failure detector and delivers relayed frames. Owned by the network fabric. Thread-safe after start().
class MonitoredTransport final : public Transport, private Transport::Receiver {
 public:
  /// The statuses that heartbeats carry.
  struct StatusHooks {
    std::function<RankStatus()> own_status;
    std::function<void(Rank from, const RankStatus& status)> status_received;
  };
  MonitoredTransport(std::unique_ptr<Transport> transport, std::chrono::nanoseconds bound, StatusHooks hooks);
  ~MonitoredTransport() override { stop(); }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  void start(Transport::Receiver& receiver, Pool& pool) override;
  bool send(Rank to, const Frame& frame, const Slice& payload) override;
  bool acknowledged(Rank peer) const override;
  std::size_t bytes_in_flight(Rank peer) const override;
  std::uint64_t bytes_from(Rank peer) const override;
  void make_progress(const std::function<bool()>& done, Deadline until) override {
    transport_->make_progress(done, until);
  }
  Collectives* collectives() override { return transport_->collectives(); }
  void stop() override;

  /// Sends this rank's status, which has changed, at once.
  void send_heartbeats_now();
  /// The members have agreed to continue without the peer.
  void exclude(Rank peer);
  /// Why this rank is no longer part of the job; empty while it is.
  std::string exclusion_reason() const;
  /// Waits while other ranks need this one as a relay.
  void linger(Deadline until) const;

 private:
  struct Relayed {
    Frame frame;
    Slice payload;
  };
  struct Peer {
    std::unique_ptr<RelayedLink> relayed_link;
    std::atomic<bool> dead{false};
    std::atomic<bool> relayed{false};  // frames go through relays
    std::atomic<bool> left{false};
    std::atomic<bool> knows_connections{false};  // has received connection_ids_
    std::atomic<std::uint64_t> relayed_bytes{0};
  };

  void arrived(Rank from, const Frame& frame, Slice payload) override;
  void gone(Rank peer) override;

  Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  void run();
  void receive_heartbeat(Rank from, const Slice& payload, bool direct);
  void receive_relayed(const Relayed& relayed);
  void forward(Frame frame, const Slice& payload);
  void switch_to_relay(Rank r);
  void lose(Rank r);
  void choose_relays();
  void send_heartbeats();

  std::unique_ptr<Transport> transport_;
  const Rank rank_;
  const Rank size_;
  const std::chrono::nanoseconds bound_;
  const StatusHooks hooks_;
  Transport::Receiver* receiver_ = nullptr;
  Pool* pool_ = nullptr;
  std::unique_ptr<Peer[]> peers_;
  std::vector<std::uint64_t> connection_ids_;  // of this rank's connections, see PeerSockets

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  FailureDetector detector_;
  PeerSockets sockets_;
  std::deque<Relayed> relayed_;
  bool evaluation_due_ = false;
  bool heartbeat_due_ = false;
  bool stopping_ = false;
  std::atomic<bool> excluded_{false};

  std::mutex heartbeat_mutex_;
  bool leaving_ = false;
  mutable std::mutex forwarding_mutex_;
  FailureDetector::Time forwarded_at_{};  // when this rank last forwarded a frame
  Rank forwarded_from_ = -1;
  Rank forwarded_to_ = -1;
  std::thread thread_;
};

}  // namespace starling::fabric::network

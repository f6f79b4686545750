#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "starling/fabric/network/detector.h"
#include "starling/fabric/network/detour.h"
#include "starling/fabric/network/notes.h"
#include "starling/fabric/network/peer_sockets.h"
#include "starling/fabric/network/wire.h"

namespace starling::network {

/// A wire whose ranks watch each other: heartbeats carry what each hears of the others, and its notes. A peer
/// is gone when the ranks have found it dead (see detector.h), not when one connection breaks: then frames go
/// through another rank. One thread of its own beats, decides and delivers what came through relays.
class WatchedWire final : public Wire, private Wire::Receiver {
 public:
  struct Hooks {
    std::function<Notes()> own;
    std::function<void(Rank from, const Notes& notes)> heard;
  };
  WatchedWire(std::unique_ptr<Wire> wire, std::chrono::nanoseconds bound, Hooks hooks);
  ~WatchedWire() override { stop(); }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  void start(Wire::Receiver& receiver, Pool& pool) override;
  bool send(Rank to, const Frame& frame, const Slice& payload) override;
  bool acknowledged(Rank peer) const override;
  std::size_t bytes_on_the_way(Rank peer) const override;
  std::uint64_t bytes_from(Rank peer) const override;
  void help(const std::function<bool()>& there, Deadline until) override { wire_->help(there, until); }
  Collectives* collectives() override { return wire_->collectives(); }
  void stop() override;

  /// The notes have changed: others hear of them now.
  void beat_now();
  /// The members have agreed to go on without it.
  void exclude(Rank peer);
  /// Why this rank is no longer part of the job; empty while it is.
  std::string exclusion() const;
  /// Waits while others need this rank to reach each other.
  void linger(Deadline until) const;

 private:
  struct Relayed {
    Frame frame;
    Slice payload;
  };
  struct Peer {
    std::unique_ptr<Detour> detour;
    std::atomic<bool> dead{false};
    std::atomic<bool> cut{false};
    std::atomic<bool> left{false};
    std::atomic<bool> hears_words{false};  // has been told this rank's connections
    std::atomic<std::uint64_t> relayed_bytes{0};
  };

  void arrived(Rank from, const Frame& frame, Slice payload) override;
  void gone(Rank peer) override;

  Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }
  void run();
  void take_heartbeat(Rank from, const Slice& payload, bool direct);
  void take_relayed(const Relayed& relayed);
  void pass_on(Frame frame, const Slice& payload);
  void detour_around(Rank r);
  void lose(Rank r);
  void choose_relays();
  void beat();

  std::unique_ptr<Wire> wire_;
  const Rank rank_;
  const Rank size_;
  const std::chrono::nanoseconds bound_;
  const Hooks hooks_;
  Wire::Receiver* receiver_ = nullptr;
  Pool* pool_ = nullptr;
  std::unique_ptr<Peer[]> peers_;
  std::vector<std::uint64_t> words_;  // for this rank's connections

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  Detector detector_;
  PeerSockets sockets_;
  std::deque<Relayed> relayed_;
  bool look_ = false;
  bool beat_ = false;
  bool stopping_ = false;
  std::atomic<bool> excluded_{false};

  std::mutex beat_mutex_;
  bool leaving_ = false;
  mutable std::mutex passing_mutex_;
  Detector::Time passed_{};  // when something was last passed on
  Rank passed_from_ = -1;
  Rank passed_to_ = -1;
  std::thread thread_;
};

}  // namespace starling::network

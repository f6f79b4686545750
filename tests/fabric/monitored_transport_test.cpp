#include "starling/fabric/network/monitored_transport.h"

#include <atomic>
#include <gtest/gtest.h>

#include "base/eventually.h"

// Tests monitored transports over simulated connections, which can be broken.

namespace starling::fabric::network {
namespace {

using namespace std::chrono_literals;

/// All connections between some ranks. Frames are delivered at once on the sender's thread, unless the link
/// is broken: then they stay in flight.
class Connections {
 public:
  explicit Connections(Rank size) : size_(size), links_(static_cast<std::size_t>(size * size)) {}

  struct Link {
    std::recursive_mutex mutex;
    bool broken = false;
    bool sending_stopped = false;
    bool ended = false;
    std::uint64_t received = 0;
    std::vector<Transport::Backlog::Item> kept;  // all frames: there are no acknowledgements here
    Transport::Receiver* receiver = nullptr;
  };
  Link& link(Rank from, Rank to) { return links_[static_cast<std::size_t>(from * size_ + to)]; }
  Rank size() const { return size_; }

  void break_link(Rank a, Rank b) {
    for (Link* one : {&link(a, b), &link(b, a)}) {
      const std::lock_guard lock(one->mutex);
      one->broken = true;
    }
  }

 private:
  Rank size_;
  std::vector<Link> links_;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport(Connections& all, Rank rank) : all_(all), rank_(rank) {}
  Rank rank() const override { return rank_; }
  Rank size() const override { return all_.size(); }
  void start(Receiver& receiver, Pool&) override {
    for (Rank r = 0; r < size(); ++r) {
      Connections::Link& link = all_.link(r, rank_);
      const std::lock_guard lock(link.mutex);
      link.receiver = &receiver;
      for (; link.received < link.kept.size(); ++link.received)
        receiver.arrived(r, link.kept[link.received].frame, link.kept[link.received].payload);
    }
  }
  bool send(Rank to, const Frame& frame, const Slice& payload) override {
    Connections::Link& link = all_.link(rank_, to);
    const std::lock_guard lock(link.mutex);
    if (link.sending_stopped) return false;
    link.kept.push_back({frame, payload});
    if (link.broken || link.ended || link.receiver == nullptr) return true;
    link.receiver->arrived(rank_, frame, payload);
    ++link.received;
    return true;
  }
  bool acknowledged(Rank) const override { return true; }
  std::size_t bytes_in_flight(Rank) const override { return 0; }
  bool tolerates_peer_failure() const override { return true; }
  Backlog stop_sending(Rank peer) override {
    Connections::Link& link = all_.link(rank_, peer);
    const std::lock_guard lock(link.mutex);
    if (std::exchange(link.sending_stopped, true))
      ADD_FAILURE() << "rank " << rank_ << " stops sending to rank " << peer << " twice";
    return {0, link.kept};
  }
  std::uint64_t stop_receiving(Rank peer) override {
    Connections::Link& link = all_.link(peer, rank_);
    const std::lock_guard lock(link.mutex);
    link.ended = true;
    return link.received;
  }
  void stop() override {
    for (Rank r = 0; r < size(); ++r) {
      const std::lock_guard lock(all_.link(r, rank_).mutex);
      all_.link(r, rank_).receiver = nullptr;
    }
  }

 private:
  Connections& all_;
  Rank rank_;
};

/// Records the numbers of messages by sender.
class Inbox final : public Transport::Receiver {
 public:
  void arrived(Rank from, const Frame& frame, Slice) override {
    const std::lock_guard lock(mutex_);
    if (frame.kind == FrameKind::message) came_[from].push_back(frame.number);
  }
  void gone(Rank peer) override {
    const std::lock_guard lock(mutex_);
    gone_.push_back(peer);
  }
  std::vector<std::uint64_t> from(Rank rank) {
    const std::lock_guard lock(mutex_);
    return came_[rank];
  }
  std::vector<Rank> lost() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::mutex mutex_;
  std::map<Rank, std::vector<std::uint64_t>> came_;
  std::vector<Rank> gone_;
};

TEST(MonitoredTransportTest, RelaysFramesOfABrokenLinkOnceAndInOrder) {
  Connections connections(3);
  Pool pool(std::size_t{1} << 30);
  std::vector<Inbox> inboxes(3);
  std::atomic<bool> heard[3][3]{};  // heartbeats, by receiver and sender
  std::vector<std::unique_ptr<MonitoredTransport>> transports;
  for (Rank r = 0; r < 3; ++r)
    transports.push_back(std::make_unique<MonitoredTransport>(
        std::make_unique<FakeTransport>(connections, r), 1s,
        MonitoredTransport::StatusHooks{
            [] { return RankStatus(); },
            [&heard, r](Rank from, const RankStatus&) { heard[r][from] = true; }}));
  for (std::size_t r = 0; r < 3; ++r) transports[r]->start(inboxes[r], pool);
  ASSERT_TRUE(eventually([&] {
    return heard[0][1] && heard[0][2] && heard[1][0] && heard[1][2] && heard[2][0] && heard[2][1];
  }));
  std::vector<std::uint64_t> expected;
  const auto send_one = [&] {
    Frame frame;
    frame.number = expected.size();
    for (Rank from = 0; from < 3; ++from)
      for (Rank to = 0; to < 3; ++to)
        if (from != to) transports[static_cast<std::size_t>(from)]->send(to, frame, {});
    expected.push_back(frame.number);
  };
  constexpr std::size_t kFrames = 100;
  while (expected.size() < kFrames) send_one();
  connections.break_link(1, 2);
  // The ranks continue to send while they notice that the link is broken.
  ASSERT_TRUE(eventually([&] {
    send_one();
    return inboxes[1].from(2).size() > kFrames && inboxes[2].from(1).size() > kFrames;
  }));
  for (std::size_t k = 0; k < kFrames; ++k) send_one();
  ASSERT_TRUE(eventually([&] {
    return inboxes[1].from(2).size() == expected.size() && inboxes[2].from(1).size() == expected.size();
  }));
  for (Rank from = 0; from < 3; ++from)
    for (Rank to = 0; to < 3; ++to) {
      if (from == to) continue;
      EXPECT_EQ(inboxes[static_cast<std::size_t>(to)].from(from), expected) << from << " to " << to;
    }
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(inboxes[r].lost().empty());
    EXPECT_EQ(transports[r]->exclusion_reason(), "");
  }
  for (const auto& transport : transports) transport->stop();
}

}  // namespace
}  // namespace starling::fabric::network

#include "starling/fabric/network/watched_wire.h"

#include <gtest/gtest.h>
#include <thread>

// Watched wires over connections of this process, which can be broken.

namespace starling::network {
namespace {

using namespace std::chrono_literals;

/// All connections between some ranks. What is sent is delivered at once on the sender's thread, unless the
/// link is broken: then it stays on its way.
class Connections {
 public:
  explicit Connections(Rank size) : size_(size), links_(static_cast<std::size_t>(size * size)) {}

  struct Link {
    std::recursive_mutex mutex;
    bool broken = false;
    bool cut = false;  // at the sending end
    bool ended = false;
    std::uint64_t received = 0;
    std::vector<Wire::Backlog::Item> kept;  // all of them: nobody acknowledges here
    Wire::Receiver* receiver = nullptr;
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

class PretendedWire final : public Wire {
 public:
  PretendedWire(Connections& all, Rank rank) : all_(all), rank_(rank) {}
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
    if (link.cut) return false;
    link.kept.push_back({frame, payload});
    if (link.broken || link.ended || link.receiver == nullptr) return true;
    link.receiver->arrived(rank_, frame, payload);
    ++link.received;
    return true;
  }
  bool acknowledged(Rank) const override { return true; }
  std::size_t bytes_on_the_way(Rank) const override { return 0; }
  bool survives_losses() const override { return true; }
  Backlog cut(Rank peer) override {
    Connections::Link& link = all_.link(rank_, peer);
    const std::lock_guard lock(link.mutex);
    if (std::exchange(link.cut, true))
      ADD_FAILURE() << "rank " << rank_ << " cuts rank " << peer << " off twice";
    return {0, link.kept};
  }
  std::uint64_t end_receiving(Rank peer) override {
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

/// Notes the numbers of messages by sender.
class Inbox final : public Wire::Receiver {
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

TEST(WatchedWire, FramesOfABrokenLinkGoThroughAnotherRankOnceAndInOrder) {
  Connections connections(3);
  Pool pool(std::size_t{1} << 30);
  std::vector<Inbox> inboxes(3);
  std::vector<std::unique_ptr<WatchedWire>> wires;
  for (Rank r = 0; r < 3; ++r)
    wires.push_back(
        std::make_unique<WatchedWire>(std::make_unique<PretendedWire>(connections, r), 1s,
                                      WatchedWire::Hooks{[] { return Notes(); }, [](Rank, const Notes&) {}}));
  for (std::size_t r = 0; r < 3; ++r) wires[r]->start(inboxes[r], pool);
  std::this_thread::sleep_for(100ms);
  constexpr std::uint64_t kFrames = 400;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t number = 0; number < kFrames; ++number) {
    if (number == 100) connections.break_link(1, 2);
    Frame frame;
    frame.number = number;
    for (Rank from = 0; from < 3; ++from)
      for (Rank to = 0; to < 3; ++to)
        if (from != to) wires[static_cast<std::size_t>(from)]->send(to, frame, {});
    expected.push_back(number);
    std::this_thread::sleep_for(5ms);
  }
  const auto all_there = [&] {
    return inboxes[1].from(2).size() == kFrames && inboxes[2].from(1).size() == kFrames;
  };
  for (int k = 0; k < 3000 && !all_there(); ++k) std::this_thread::sleep_for(10ms);
  for (Rank from = 0; from < 3; ++from)
    for (Rank to = 0; to < 3; ++to) {
      if (from == to) continue;
      EXPECT_EQ(inboxes[static_cast<std::size_t>(to)].from(from), expected) << from << " to " << to;
    }
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(inboxes[r].lost().empty());
    EXPECT_EQ(wires[r]->exclusion(), "");
  }
  for (const auto& wire : wires) wire->stop();
}

}  // namespace
}  // namespace starling::network

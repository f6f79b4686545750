#include "starling/fabric/c10d/c10d_transport.h"

#include <charconv>
#include <fmt/format.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/c10d/link.h"

namespace starling::fabric::c10d_engine {
namespace {

/// One link per peer, over process groups of its own. See network::Transport for the threads.
class C10dTransport final : public network::Transport, private network::TrafficControl {
 public:
  C10dTransport(Groups groups, Rank size, const std::vector<Rank>& members)
      : TrafficControl(size),
        groups_(std::move(groups)),
        rank_(members[static_cast<std::size_t>(groups_.frames->getRank())]),
        size_(size),
        links_(static_cast<std::size_t>(size)) {
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i] != rank_)
        links_[static_cast<std::size_t>(members[i])] = make_link(members[i], static_cast<Rank>(i));
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }

  void start(Receiver& receiver, network::Pool& pool) override {
    for (Rank r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      has_link(r) ? link(r).start(receiver, pool) : receiver.gone(r);
    }
  }
  bool send(Rank to, const network::Frame& frame, const network::Slice& payload) override {
    return has_link(to) && link(to).send(frame, payload);
  }
  bool tolerates_peer_failure() const override { return true; }
  Backlog stop_sending(Rank peer) override { return has_link(peer) ? link(peer).stop_sending() : Backlog(); }
  std::uint64_t stop_receiving(Rank peer) override {
    return has_link(peer) ? link(peer).stop_receiving() : 0;
  }
  void abandon_peer(Rank peer) override {
    if (has_link(peer)) link(peer).abandon_peer();
  }
  std::uint64_t bytes_from(Rank peer) const override {
    return has_link(peer) ? link(peer).bytes_received() : 0;
  }
  bool acknowledged(Rank peer) const override { return !has_link(peer) || link(peer).acknowledged(); }
  std::size_t bytes_in_flight(Rank peer) const override {
    return has_link(peer) ? link(peer).bytes_in_flight() : 0;
  }
  void make_progress(const std::function<bool()>&, Deadline) override { recheck(); }
  void stop() override {
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  void send_payloads(const network::SendScheduler::Releases& released) override {
    for (const auto& [peer, payloads] : released) link(peer).send_held(payloads);
  }
  void receive_payloads(const network::SendScheduler::Releases& released) override {
    for (const auto& [peer, payloads] : released) link(peer).receive_held(payloads);
  }

  std::unique_ptr<Link> make_link(Rank peer, Rank in_group) {
    Group& up = *groups_.up;
    Group& down = *groups_.down;
    network::TrafficControl& traffic = *this;
    const bool is_higher = peer > rank();
    return std::make_unique<Link>(*groups_.frames, is_higher ? up : down, is_higher ? down : up, peer,
                                  in_group, traffic);
  }
  bool has_link(Rank r) const { return links_[static_cast<std::size_t>(r)] != nullptr; }
  Link& link(Rank r) const { return *links_[static_cast<std::size_t>(r)]; }

  Groups groups_;
  Rank rank_;
  Rank size_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null for this rank and those that never joined
};

/// Agreements are keys in the store, set by compare-and-set.
class StoreConsensus final : public network::Consensus {
 public:
  StoreConsensus(StorePtr store, std::shared_ptr<void> watch)
      : store_(std::move(store)), watch_(std::move(watch)) {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    const std::string text = std::to_string(proposal);
    const std::vector<std::uint8_t> nothing;
    const std::vector<std::uint8_t> proposed(text.begin(), text.end());
    const std::vector<std::uint8_t> agreed =
        compare_set(fmt::format("agree/{:016x}", key), nothing, proposed);
    const std::string value(agreed.begin(), agreed.end());
    std::int64_t number = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    if (result.ec != std::errc() || result.ptr != value.data() + value.size())
      throw Error(
          fmt::format("the store answered '{}' instead of the number that the ranks agree on", value));
    return number;
  }

 private:
  std::vector<std::uint8_t> compare_set(const std::string& key, const std::vector<std::uint8_t>& expected,
                                        const std::vector<std::uint8_t>& desired) {
    try {
      return store_->compareSet(key, expected, desired);
    } catch (const std::exception& error) {
      throw Error(fmt::format("the ranks cannot agree on how to continue because their store is gone: {}",
                              error.what()));
    }
  }

  StorePtr store_;
  std::shared_ptr<void> watch_;
};

}  // namespace

std::unique_ptr<network::Transport> make_transport(Groups groups, Rank size,
                                                   const std::vector<Rank>& members) {
  return std::make_unique<C10dTransport>(std::move(groups), size, members);
}

std::unique_ptr<network::Consensus> make_store_consensus(StorePtr store, std::shared_ptr<void> watch) {
  return std::make_unique<StoreConsensus>(std::move(store), std::move(watch));
}

}  // namespace starling::fabric::c10d_engine

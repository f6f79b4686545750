#include "starling/fabric/c10d/wire.h"

#include <charconv>
#include <fmt/format.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/c10d/link.h"

namespace starling::c10d_engine {
namespace {

class C10dWire final : public network::Wire {
 public:
  C10dWire(Groups groups, Rank size, const std::vector<Rank>& members)
      : groups_(std::move(groups)),
        rank_(members[static_cast<std::size_t>(groups_.frames->getRank())]),
        size_(size),
        traffic_{network::Turns(size), network::Turns(size),
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all) link(peer).send_held(payloads);
                 },
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all) link(peer).receive_held(payloads);
                 }},
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
      there(r) ? link(r).start(receiver, pool) : receiver.gone(r);
    }
  }
  bool send(Rank to, const network::Frame& frame, const network::Slice& payload) override {
    return there(to) && link(to).send(frame, payload);
  }
  bool survives_losses() const override { return true; }
  Backlog cut(Rank peer) override { return there(peer) ? link(peer).cut() : Backlog(); }
  std::uint64_t end_receiving(Rank peer) override { return there(peer) ? link(peer).end_receiving() : 0; }
  void give_up(Rank peer) override {
    if (there(peer)) link(peer).give_up();
  }
  std::uint64_t bytes_from(Rank peer) const override { return there(peer) ? link(peer).bytes_received() : 0; }
  bool acknowledged(Rank peer) const override { return !there(peer) || link(peer).acknowledged(); }
  std::size_t bytes_on_the_way(Rank peer) const override {
    return there(peer) ? link(peer).bytes_on_the_way() : 0;
  }
  void help(const std::function<bool()>&, Deadline) override {
    traffic_.send(traffic_.out.look());
    traffic_.receive(traffic_.in.look());
  }
  void stop() override {
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  std::unique_ptr<Link> make_link(Rank peer, Rank in_group) {
    Group& up = *groups_.up;
    Group& down = *groups_.down;
    const bool is_higher = peer > rank();
    return std::make_unique<Link>(*groups_.frames, is_higher ? up : down, is_higher ? down : up, peer,
                                  in_group, traffic_);
  }
  bool there(Rank r) const { return links_[static_cast<std::size_t>(r)] != nullptr; }
  Link& link(Rank r) const { return *links_[static_cast<std::size_t>(r)]; }

  Groups groups_;
  Rank rank_;
  Rank size_;
  network::Traffic traffic_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null for this one and those that never came
};

class StoreLedger final : public network::Ledger {
 public:
  StoreLedger(StorePtr store, std::shared_ptr<void> watch)
      : store_(std::move(store)), watch_(std::move(watch)) {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    const std::string text = std::to_string(proposal);
    const std::vector<std::uint8_t> nothing;
    const std::vector<std::uint8_t> proposed(text.begin(), text.end());
    const std::vector<std::uint8_t> there = ask(fmt::format("agree/{:016x}", key), nothing, proposed);
    const std::string value(there.begin(), there.end());
    std::int64_t number = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    if (result.ec != std::errc() || result.ptr != value.data() + value.size())
      throw Error(fmt::format("the store answered '{}' where ranks agree on a number", value));
    return number;
  }

 private:
  std::vector<std::uint8_t> ask(const std::string& key, const std::vector<std::uint8_t>& expected,
                                const std::vector<std::uint8_t>& desired) {
    try {
      return store_->compareSet(key, expected, desired);
    } catch (const std::exception& error) {
      throw Error(
          fmt::format("ranks cannot agree on how to go on, because their store is gone: {}", error.what()));
    }
  }

  StorePtr store_;
  std::shared_ptr<void> watch_;
};

}  // namespace

std::unique_ptr<network::Wire> make_wire(Groups groups, Rank size, const std::vector<Rank>& members) {
  return std::make_unique<C10dWire>(std::move(groups), size, members);
}

std::unique_ptr<network::Ledger> make_ledger(StorePtr store, std::shared_ptr<void> watch) {
  return std::make_unique<StoreLedger>(std::move(store), std::move(watch));
}

}  // namespace starling::c10d_engine

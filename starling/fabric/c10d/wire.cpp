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
  explicit C10dWire(Groups groups)
      : groups_(std::move(groups)),
        traffic_{network::Turns(size()), network::Turns(size()),
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all) link(peer).send_held(payloads);
                 },
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all) link(peer).receive_held(payloads);
                 }} {
    for (Rank r = 0; r < size(); ++r) links_.push_back(r == rank() ? nullptr : make_link(r));
  }

  Rank rank() const override { return groups_.frames->getRank(); }
  Rank size() const override { return groups_.frames->getSize(); }

  void start(Receiver& receiver, network::Pool& pool) override {
    for (const auto& link : links_)
      if (link) link->start(receiver, pool);
  }
  void send(Rank to, const network::Frame& frame, const network::Slice& payload) override {
    link(to).send(frame, payload);
  }
  bool acknowledged(Rank peer) const override { return link(peer).acknowledged(); }
  std::size_t bytes_on_the_way(Rank peer) const override { return link(peer).bytes_on_the_way(); }
  void help(const std::function<bool()>&, Deadline) override {
    traffic_.send(traffic_.out.look());
    traffic_.receive(traffic_.in.look());
  }
  void stop() override {
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  std::unique_ptr<Link> make_link(Rank peer) {
    Group& up = *groups_.up;
    Group& down = *groups_.down;
    const bool is_higher = peer > rank();
    return std::make_unique<Link>(*groups_.frames, is_higher ? up : down, is_higher ? down : up, peer,
                                  traffic_);
  }
  Link& link(Rank r) const { return *links_[static_cast<std::size_t>(r)]; }

  Groups groups_;
  network::Traffic traffic_;
  std::vector<std::unique_ptr<Link>> links_;
};

class StoreLedger final : public network::Ledger {
 public:
  explicit StoreLedger(StorePtr store) : store_(std::move(store)) {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    const std::string text = std::to_string(proposal);
    const std::vector<std::uint8_t> nothing;
    const std::vector<std::uint8_t> proposed(text.begin(), text.end());
    const std::vector<std::uint8_t> there =
        store_->compareSet(fmt::format("agree/{:016x}", key), nothing, proposed);
    const std::string value(there.begin(), there.end());
    std::int64_t number = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    if (result.ec != std::errc() || result.ptr != value.data() + value.size())
      throw Error(fmt::format("the store answered '{}' where ranks agree on a number", value));
    return number;
  }

 private:
  StorePtr store_;
};

}  // namespace

std::unique_ptr<network::Wire> make_wire(Groups groups) {
  return std::make_unique<C10dWire>(std::move(groups));
}

std::unique_ptr<network::Ledger> make_ledger(StorePtr store) {
  return std::make_unique<StoreLedger>(std::move(store));
}

}  // namespace starling::c10d_engine

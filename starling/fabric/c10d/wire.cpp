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
  explicit C10dWire(GroupPtr group) : group_(std::move(group)) {
    for (Rank r = 0; r < size(); ++r)
      links_.push_back(r == rank() ? nullptr : std::make_unique<Link>(*group_, r));
  }

  Rank rank() const override { return group_->getRank(); }
  Rank size() const override { return group_->getSize(); }

  void start(Receiver& receiver, network::Pool& pool) override {
    for (const auto& link : links_)
      if (link) link->start(receiver, pool);
  }
  void send(Rank to, const network::Frame& frame, const network::Slice& payload) override {
    link(to).send(frame, payload);
  }
  bool acknowledged(Rank peer) const override { return link(peer).acknowledged(); }
  std::size_t bytes_on_the_way(Rank peer) const override { return link(peer).bytes_on_the_way(); }
  void stop() override {
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  Link& link(Rank r) const { return *links_[static_cast<std::size_t>(r)]; }

  GroupPtr group_;
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

std::unique_ptr<network::Wire> make_wire(GroupPtr group) {
  return std::make_unique<C10dWire>(std::move(group));
}

std::unique_ptr<network::Ledger> make_ledger(StorePtr store) {
  return std::make_unique<StoreLedger>(std::move(store));
}

}  // namespace starling::c10d_engine

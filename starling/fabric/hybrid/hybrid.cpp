#include "starling/fabric/hybrid/hybrid.h"

#include <atomic>
#include <mutex>

#include "starling/fabric/hybrid/services.h"

namespace starling {
namespace {

/// A message lies in shared memory, from where the network sends it, too. The local fabric does the sleeping:
/// what comes over the network nudges it. What services tell a rank of this host goes over the network: marks
/// on both ways keep it before the messages that follow.
class Hybrid final : public Fabric, private Outgoing::Owner {
 public:
  Hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
         const std::vector<Rank>& same_host, Rank ranks_per_host, std::unique_ptr<Door> door)
      : door_(std::move(door)),
        local_(std::move(local)),
        network_(std::move(network)),
        ranks_per_host_(ranks_per_host),
        there_(static_cast<std::size_t>(network_->size()), kElsewhere),
        pairs_(std::make_unique<Pair[]>(same_host.size())),
        services_(*network_, [this](Rank to) {
          if (here(to) != kElsewhere) pairs_[static_cast<std::size_t>(here(to))].told = true;
        }) {
    for (std::size_t i = 0; i < same_host.size(); ++i)
      there_[static_cast<std::size_t>(same_host[i])] = static_cast<Rank>(i);
    network_->set_listener([local = local_.get()] { local->nudge(); });
  }
  ~Hybrid() override { network_->set_listener(nullptr); }

  Rank rank() const override { return network_->rank(); }
  Rank size() const override { return network_->size(); }
  Rank ranks_per_host() const override { return ranks_per_host_; }

  Outgoing reserve(std::size_t bytes) override {
    auto* held = new Held(std::make_shared<Outgoing>(local_->reserve(bytes)));
    return {this, held, (*held)->bytes()};
  }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    const Held& held = *static_cast<Held*>(range.handle());
    if (const Rank near = here(to); near != kElsewhere) {
      if (pair(near).told.exchange(false)) mark(to, near);
      local_->post({*held, range.offset(), range.bytes().size()}, header, near);
      return;
    }
    const network::Memory memory(held, held->bytes().data());  // lives as long as the network needs it
    network_->post_memory({memory, range.offset(), range.bytes().size()}, header, to);
  }

  bool backlogged(Rank to, std::uint64_t bytes) override {
    const Rank near = here(to);
    return near == kElsewhere ? network_->backlogged(to, bytes) : local_->backlogged(near, bytes);
  }

  std::optional<Arrival> poll(Rank source) override {
    const Rank near = here(source);
    if (near == kElsewhere) {
      auto arrival = network_->poll(source);
      if (arrival) local_->nudge();
      return arrival;
    }
    const std::lock_guard lock(pair(near).mutex);
    for (;;) {
      if (pair(near).held && network_->alive(source) && !network_->poll(source)) return std::nullopt;
      pair(near).held = false;
      auto arrival = local_->poll(near);
      if (arrival && is_mark(*arrival)) {
        pair(near).held = true;
        continue;
      }
      if (arrival) arrival->set_source(source);
      return arrival;
    }
  }

  std::uint32_t ticket() const override { return local_->ticket(); }

  void sleep(std::uint32_t ticket, std::span<const Rank> sources, Deadline deadline) override {
    std::vector<Rank> near;
    for (const Rank source : sources)
      if (const Rank there = here(source); there != kElsewhere) near.push_back(there);
    local_->sleep(ticket, near, deadline);
  }
  void nudge() override { local_->nudge(); }

  std::uint64_t expose(std::size_t bytes) override { return network_->expose(bytes); }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { network_->withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override { return network_->exposed(rank, memory); }
  Services* services() override { return &services_; }
  Board& board() override { return network_->board(); }
  Door* door() override { return door_.get(); }
  void give_way() override { local_->give_way(); }

  // What a rank of this host posted before the network knew that it is gone is here.
  bool alive(Rank peer) const override {
    const Rank near = here(peer);
    return network_->alive(peer) && (near == kElsewhere || local_->alive(near));
  }
  std::string exclusion() const override { return network_->exclusion(); }
  void exclude(Rank peer) override { network_->exclude(peer); }
  std::uint64_t bytes_from(Rank source) const override { return network_->bytes_from(source); }

 private:
  static constexpr Rank kElsewhere = -1;
  using Held = std::shared_ptr<Outgoing>;
  /// What is between this rank and another of its host.
  struct Pair {
    std::atomic<bool> told{false};  // something over the network since the last mark
    std::mutex mutex;               // of what follows
    bool held = false;              // until the network has brought the mark, too
  };

  Pair& pair(Rank near) const { return pairs_[static_cast<std::size_t>(near)]; }

  void mark(Rank to, Rank near) {
    MessageHeader header;
    header.kind = static_cast<std::uint16_t>(MessageKind::mark);
    network_->post(network_->reserve(0), header, to);
    local_->post(local_->reserve(0), header, near);
  }
  static bool is_mark(const Arrival& arrival) {
    return arrival.header().kind == static_cast<std::uint16_t>(MessageKind::mark);
  }

  Rank here(Rank rank) const { return there_[static_cast<std::size_t>(rank)]; }
  void give_back(void* handle) noexcept override { delete static_cast<Held*>(handle); }

  std::unique_ptr<Door> door_;
  std::shared_ptr<Fabric> local_;
  std::shared_ptr<NetworkFabric> network_;  // goes first: it still sends from the local one's memory
  Rank ranks_per_host_;
  std::vector<Rank> there_;        // by rank: its number among those of this host
  std::unique_ptr<Pair[]> pairs_;  // by number on this host
  HybridServices services_;
};

}  // namespace

std::shared_ptr<Fabric> make_hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
                                    const std::vector<Rank>& same_host, Rank ranks_per_host,
                                    std::unique_ptr<Door> door) {
  return std::make_shared<Hybrid>(std::move(local), std::move(network), same_host, ranks_per_host,
                                  std::move(door));
}

}  // namespace starling

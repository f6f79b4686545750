#include "starling/fabric/hybrid/hybrid.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "starling/fabric/remote_calls.h"

namespace starling::fabric {
namespace {

/// The network fabric's remote calls; copies arguments and replies, which are in shared memory, into its
/// memory.
class HybridRemoteCalls final : public RemoteCalls {
 public:
  /// `notified` is called after each notification, with its destination.
  HybridRemoteCalls(Fabric& network, std::function<void(Rank)> notified)
      : network_(network), notified_(std::move(notified)) {}

  std::uint64_t add_handler(Handler handler) override {
    return network_.remote_calls()->add_handler(
        [&network = network_, handler = std::move(handler)](Rank from, std::span<const std::byte> arguments) {
          return copy_to(network, handler(from, arguments));
        });
  }
  void remove_handler(std::uint64_t handler) override { network_.remote_calls()->remove_handler(handler); }
  void notify(const Outgoing& arguments, std::uint64_t handler, Rank to) override {
    network_.remote_calls()->notify(copy_to(network_, arguments), handler, to);
    notified_(to);
  }
  std::optional<Arrival> call(const Outgoing& arguments, std::uint64_t handler, Rank to,
                              Deadline deadline) override {
    return network_.remote_calls()->call(copy_to(network_, arguments), handler, to, deadline);
  }
  bool wait_for_room(Rank to, Deadline deadline) const override {
    return network_.remote_calls()->wait_for_room(to, deadline);
  }

 private:
  static Outgoing copy_to(Fabric& network, const Outgoing& message) {
    if (!message) return {};
    Outgoing copy = network.reserve(message.bytes().size());
    if (!message.bytes().empty())
      std::memcpy(copy.bytes().data(), message.bytes().data(), message.bytes().size());
    return copy;
  }

  Fabric& network_;
  std::function<void(Rank)> notified_;
};

/// Outgoing messages are in shared memory, from which the network fabric sends them, too. Threads sleep in
/// the local fabric, which the network fabric nudges. Remote calls always go over the network, even to ranks
/// of the same host; order marks on both paths keep them in order with the messages that follow. Thread-safe.
class Hybrid final : public Fabric, private Outgoing::Owner {
 public:
  Hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
         const std::vector<Rank>& same_host, Rank ranks_per_host, std::unique_ptr<Admission> admission)
      : admission_(std::move(admission)),
        local_(std::move(local)),
        network_(std::move(network)),
        ranks_per_host_(ranks_per_host),
        local_ranks_(static_cast<std::size_t>(network_->size()), kOtherHost),
        same_host_(std::make_unique<SameHostPeer[]>(same_host.size())),
        remote_calls_(*network_, [this](Rank to) {
          if (local_rank(to) != kOtherHost)
            same_host_[static_cast<std::size_t>(local_rank(to))].notified = true;
        }) {
    for (std::size_t i = 0; i < same_host.size(); ++i)
      local_ranks_[static_cast<std::size_t>(same_host[i])] = static_cast<Rank>(i);
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
    if (const Rank local_to = local_rank(to); local_to != kOtherHost) {
      if (same_host_peer(local_to).notified.exchange(false)) post_marks(to, local_to);
      local_->post({*held, range.offset(), range.bytes().size()}, header, local_to);
      return;
    }
    const network::Memory memory(held,
                                 held->bytes().data());  // keeps the message alive while the network sends it
    network_->post_memory({memory, range.offset(), range.bytes().size()}, header, to);
  }

  bool backlogged(Rank to, std::uint64_t bytes) override {
    const Rank local_to = local_rank(to);
    return local_to == kOtherHost ? network_->backlogged(to, bytes) : local_->backlogged(local_to, bytes);
  }

  std::optional<Arrival> poll(Rank source) override {
    const Rank local_source = local_rank(source);
    if (local_source == kOtherHost) {
      auto arrival = network_->poll(source);
      if (arrival) local_->nudge();
      return arrival;
    }
    const std::lock_guard lock(same_host_peer(local_source).mutex);
    for (;;) {
      if (same_host_peer(local_source).held && network_->alive(source) && !network_->poll(source))
        return std::nullopt;
      same_host_peer(local_source).held = false;
      auto arrival = local_->poll(local_source);
      if (arrival && is_order_mark(*arrival)) {
        same_host_peer(local_source).held = true;
        continue;
      }
      if (arrival) arrival->set_source(source);
      return arrival;
    }
  }

  std::uint32_t wake_count() const override { return local_->wake_count(); }

  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    std::vector<Rank> local_sources;
    for (const Rank source : sources)
      if (const Rank local_source = local_rank(source); local_source != kOtherHost)
        local_sources.push_back(local_source);
    local_->sleep(wake_count, local_sources, deadline);
  }
  void nudge() override { local_->nudge(); }

  std::uint64_t expose(std::size_t bytes) override { return network_->expose(bytes); }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { network_->withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override { return network_->exposed(rank, memory); }
  RemoteCalls* remote_calls() override { return &remote_calls_; }
  Board& board() override { return network_->board(); }
  Admission* admission() override { return admission_.get(); }
  void yield_cpu() override { local_->yield_cpu(); }

  // If the network sees the death of a rank of this host first, its messages are already in shared memory.
  bool alive(Rank peer) const override {
    const Rank local_peer = local_rank(peer);
    return network_->alive(peer) && (local_peer == kOtherHost || local_->alive(local_peer));
  }
  std::string exclusion_reason() const override { return network_->exclusion_reason(); }
  void exclude(Rank peer) override { network_->exclude(peer); }
  std::uint64_t bytes_from(Rank source) const override { return network_->bytes_from(source); }

 private:
  static constexpr Rank kOtherHost = -1;
  using Held = std::shared_ptr<Outgoing>;
  /// The state of the two paths to another rank of this host.
  struct SameHostPeer {
    std::atomic<bool> notified{false};  // a call went over the network since the last mark
    std::mutex mutex;                   // guards `held`
    bool held = false;                  // local messages wait until the network has delivered the mark, too
  };

  SameHostPeer& same_host_peer(Rank local) const { return same_host_[static_cast<std::size_t>(local)]; }

  void post_marks(Rank to, Rank local_to) {
    MessageHeader header;
    header.kind = static_cast<std::uint16_t>(MessageKind::order_mark);
    network_->post(network_->reserve(0), header, to);
    local_->post(local_->reserve(0), header, local_to);
  }
  static bool is_order_mark(const Arrival& arrival) {
    return arrival.header().kind == static_cast<std::uint16_t>(MessageKind::order_mark);
  }

  Rank local_rank(Rank rank) const { return local_ranks_[static_cast<std::size_t>(rank)]; }
  void give_back(void* handle) noexcept override { delete static_cast<Held*>(handle); }

  std::unique_ptr<Admission> admission_;
  std::shared_ptr<Fabric> local_;
  std::shared_ptr<NetworkFabric> network_;  // destroyed before local_, from whose memory it sends
  Rank ranks_per_host_;
  std::vector<Rank> local_ranks_;              // by rank: the rank in local_, or kOtherHost
  std::unique_ptr<SameHostPeer[]> same_host_;  // by rank in local_
  HybridRemoteCalls remote_calls_;
};

}  // namespace

std::shared_ptr<Fabric> make_hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
                                    const std::vector<Rank>& same_host, Rank ranks_per_host,
                                    std::unique_ptr<Admission> admission) {
  return std::make_shared<Hybrid>(std::move(local), std::move(network), same_host, ranks_per_host,
                                  std::move(admission));
}

}  // namespace starling::fabric

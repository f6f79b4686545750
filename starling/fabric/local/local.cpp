#include "starling/fabric/local/local.h"

#include <algorithm>
#include <fmt/format.h>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <sched.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/futex.h"
#include "starling/fabric/local/heap.h"
#include "starling/fabric/local/layout.h"
#include "starling/fabric/local/peers.h"
#include "starling/fabric/local/region.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling {
namespace local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};  // deaths ring no bell: look for them this often
constexpr std::size_t kScanAll = 32;  // with more messages outstanding, most posts look at the oldest only

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Every rank's region by rank; threads of one process share the mappings, so that a thread sanitizer sees
/// what they do.
using Regions = std::vector<std::shared_ptr<Region>>;

/// A region of one's own, initialised before others see it.
std::shared_ptr<Region> make_region(Rank rank, Rank size) {
  auto region = std::make_shared<Region>(Region::create(fmt::format("starling-{}", rank)));
  region->reserve(heap_offset(size));
  new (region->at(0)) Control;
  for (Rank destination = 0; destination < size; ++destination)
    new (region->at(head_offset(destination))) Node;
  return region;
}

class LocalFabric final : public Fabric, private Outgoing::Owner, private Arrival::Owner {
 public:
  LocalFabric(Rank rank, Regions regions, Peers peers, const LocalOptions& options)
      : rank_(rank),
        size_(static_cast<Rank>(regions.size())),
        regions_(std::move(regions)),
        peers_(std::move(peers)),
        heap_(mine(), heap_offset(size_), options.memory_limit),
        spins_(size_ <= usable_cores() ? 2000 : 20) {
    for (Rank r = 0; r < size_; ++r) {
      tails_.push_back(head_offset(r));
      cursors_.push_back(head_offset(rank_));
    }
    control(rank_).presence.store(Presence::present, std::memory_order_release);
  }

  ~LocalFabric() override {
    control(rank_).presence.store(Presence::left, std::memory_order_release);
    for (Rank r = 0; r < size_; ++r) ring(r);
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }

  Outgoing reserve(std::size_t bytes) override {
    const std::lock_guard lock(send_mutex_);
    const std::uint64_t offset = allocate(bytes);
    return {this, offset, {mine().at(offset), bytes}};
  }

  void post(Outgoing message, const MessageHeader& header, std::span<const Rank> destinations) override {
    const std::lock_guard lock(send_mutex_);
    Sent sent;
    sent.bytes = message.bytes().size();
    sent.payload = message.release();
    for (const Rank to : destinations) {
      std::uint64_t offset = 0;
      try {
        offset = allocate(sizeof(Node));
      } catch (...) {
        sent_.push_back(std::move(sent));  // what was linked already is on its way
        throw;
      }
      Node* node = new (mine().at(offset)) Node;
      node->payload = sent.payload;
      node->header = header;
      node->header.bytes = sent.bytes;
      // The one store that makes the message exist: a sender killed before it has sent nothing, after it all.
      mine().as<Node>(tails_[static_cast<std::size_t>(to)])->next.store(offset, std::memory_order_release);
      tails_[static_cast<std::size_t>(to)] = offset;
      sent.nodes.emplace_back(to, offset);
    }
    sent_.push_back(std::move(sent));
    for (const Rank to : destinations) ring(to);
  }

  std::optional<Arrival> poll(Rank source) override {
    const std::lock_guard lock(receive_mutex_);
    const Region& theirs = *regions_[static_cast<std::size_t>(source)];
    std::uint64_t& cursor = cursors_[static_cast<std::size_t>(source)];
    Node* last = theirs.as<Node>(cursor);
    const std::uint64_t next = last->next.load(std::memory_order_acquire);
    if (next == 0) return std::nullopt;
    cursor = next;
    last->state.fetch_or(Node::kPassed, std::memory_order_release);
    const Node* node = theirs.as<Node>(next);
    return Arrival(this, source, next, node->header, {theirs.at(node->payload), node->header.bytes});
  }

  std::uint32_t ticket() const override { return control(rank_).bell.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t ticket, Deadline deadline) override {
    Control& own = control(rank_);
    for (int i = 0; i < spins_; ++i) {
      if (own.bell.load(std::memory_order_acquire) != ticket) return;
      relax();
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
    if (left.count() <= 0) return;
    // Who rings looks at `sleepers` after the bell, we look at the bell after `sleepers`: one of the two sees
    // the other.
    own.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(own.bell, ticket, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
    own.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  bool alive(Rank peer) const override {
    return peer == rank_ ||
           (control(peer).presence.load(std::memory_order_acquire) != Presence::left && !peers_.dead(peer));
  }

 private:
  /// A posted message until its readers have done with it.
  struct Sent {
    std::uint64_t payload = 0;  // 0 once freed
    std::size_t bytes = 0;
    std::vector<std::pair<Rank, std::uint64_t>> nodes;
  };

  Region& mine() { return *regions_[static_cast<std::size_t>(rank_)]; }
  Control& control(Rank r) const { return *regions_[static_cast<std::size_t>(r)]->as<Control>(0); }

  void ring(Rank to) const {
    Control& theirs = control(to);
    theirs.bell.fetch_add(1, std::memory_order_seq_cst);
    if (theirs.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(theirs.bell);
  }

  // What readers gave back is used first. Before the region grows, messages to the dead are given up.
  std::uint64_t allocate(std::size_t bytes) {
    reclaim(/*all=*/false);
    std::uint64_t offset = heap_.allocate(bytes, /*may_grow=*/false);
    if (offset == 0) {
      reclaim(/*all=*/true);
      offset = heap_.allocate(bytes, /*may_grow=*/true);
    }
    if (offset == 0) throw Error(full_message(bytes));
    return offset;
  }

  void give_back(std::uint64_t handle) noexcept override {
    const std::lock_guard lock(send_mutex_);
    heap_.free(handle);
  }

  void done_with(Rank source, std::uint64_t handle) noexcept override {
    regions_[static_cast<std::size_t>(source)]->as<Node>(handle)->state.fetch_or(Node::kReleased,
                                                                                 std::memory_order_release);
  }

  // Frees what readers, or their deaths, have given back. A list's last node stays: the next one will hang on
  // it.
  bool reclaim_one(Sent& sent, bool ask_for_deaths) {
    bool payload_held = false;
    std::erase_if(sent.nodes, [&](const std::pair<Rank, std::uint64_t>& entry) {
      const auto [to, offset] = entry;
      const std::uint32_t state = mine().as<Node>(offset)->state.load(std::memory_order_acquire);
      const bool gone = ask_for_deaths && !alive(to);
      if ((state & Node::kReleased) == 0 && !gone) payload_held = true;
      if (offset == tails_[static_cast<std::size_t>(to)]) return false;
      if (!gone && state != (Node::kReleased | Node::kPassed)) return false;
      heap_.free(offset);
      return true;
    });
    if (!payload_held && sent.payload != 0) {
      heap_.free(sent.payload);
      sent.payload = 0;
    }
    return sent.payload == 0 && sent.nodes.empty();
  }

  void reclaim(bool all) {
    const bool whole = all || sent_.size() <= kScanAll || ++posts_ % kScanAll == 0;
    for (auto sent = sent_.begin(); sent != sent_.end();) {
      const bool done = reclaim_one(*sent, all);
      if (done) {
        sent = sent_.erase(sent);
      } else {
        if (!whole) break;
        ++sent;
      }
    }
  }

  std::string full_message(std::size_t bytes) {
    std::map<Rank, std::uint64_t> held;
    for (const Sent& sent : sent_)
      for (const auto& [to, offset] : sent.nodes)
        if ((mine().as<Node>(offset)->state.load() & Node::kReleased) == 0) held[to] += sent.bytes;
    std::string holders;
    for (const auto& [to, amount] : held)
      holders += fmt::format("{}rank {} holds {}", holders.empty() ? "" : ", ", to, amount);
    return fmt::format("no room for a message of {} bytes: {} of {} bytes are waiting to be read ({})", bytes,
                       heap_.used(), heap_.limit(), holders.empty() ? "nobody holds any" : holders);
  }

  Rank rank_;
  Rank size_;
  Regions regions_;
  Peers peers_;

  std::mutex send_mutex_;
  Heap heap_;
  std::vector<std::uint64_t> tails_;  // per destination: its list's last node, in the own region
  std::list<Sent> sent_;
  std::size_t posts_ = 0;

  std::mutex receive_mutex_;
  std::vector<std::uint64_t> cursors_;  // per source: the last node seen, in the source's region
  int spins_;
};

}  // namespace
}  // namespace local

std::shared_ptr<Fabric> join_local(const std::string& job, Rank rank, Rank size,
                                   const LocalOptions& options) {
  auto own = local::make_region(rank, size);
  local::Meeting meeting = local::meet(job, rank, size, own->descriptor(), options.join_timeout);
  local::Regions regions;
  for (std::size_t r = 0; r < meeting.descriptors.size(); ++r) {
    if (static_cast<Rank>(r) == rank) {
      close(meeting.descriptors[r]);
      meeting.pids[r] = 0;
      regions.push_back(own);
    } else {
      regions.push_back(std::make_shared<local::Region>(local::Region::adopt(meeting.descriptors[r])));
    }
  }
  return std::make_shared<local::LocalFabric>(rank, std::move(regions), local::Peers(meeting.pids), options);
}

std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options) {
  local::Regions regions;
  for (Rank r = 0; r < size; ++r) regions.push_back(local::make_region(r, size));
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (Rank r = 0; r < size; ++r)
    fabrics.push_back(std::make_shared<local::LocalFabric>(
        r, regions, local::Peers(std::vector<pid_t>(static_cast<std::size_t>(size), 0)), options));
  return fabrics;
}

}  // namespace starling

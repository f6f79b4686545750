#include "starling/fabric/local/local.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <linux/futex.h>
#include <map>
#include <new>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/message_lists.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric {
namespace local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};  // a death wakes no sleeper: check this often
constexpr std::chrono::microseconds kSpin{200};   // if every rank has a core: waking up takes half of this
constexpr std::chrono::microseconds kYield{100};  // with fewer cores: another rank has work for this core
constexpr int kSpins = 64;
constexpr int kYields = 4;

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

// Creates a region and initializes it, before other ranks see it.
std::shared_ptr<Region> make_region(Rank rank, Rank size) {
  auto region = std::make_shared<Region>(Region::create(fmt::format("starling-{}", rank)));
  region->reserve(heap_offset(rank, size));
  new (region->at(0)) Control;
  for (Rank destination = 0; destination < size; ++destination)
    new (region->at(chunk_offset(destination))) Chunk;
  return region;
}

// Checking whether a reader has released a message fetches a cache line that the reader owns. Small messages
// are checked only when at least this many are unreleased; large ones every time, because reusing their
// memory while it is in the cache pays off.
constexpr std::size_t kFewest = 16;
constexpr std::size_t kManyLarge = 64;

// Sleeps while *word == expected, at most for `most`. Works between processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds most) {
  const timespec timeout{static_cast<time_t>(most.count() / 1'000'000'000),
                         static_cast<long>(most.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Outbox::Outbox(Rank rank, Rank size, Region& region, std::uint64_t limit, std::function<bool(Rank)> alive)
    : rank_(rank),
      region_(region),
      alive_(std::move(alive)),
      heap_(region, heap_offset(rank, size), limit),
      destinations_(static_cast<std::size_t>(size)),
      reclaim_at_(kFewest) {
  for (Rank to = 0; to < size; ++to)
    destinations_[static_cast<std::size_t>(to)].tail = region_.as<Chunk>(chunk_offset(to));
}

Outgoing Outbox::reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // A message of zero bytes needs no memory, only an offset that is not 0.
  const std::uint64_t offset = bytes == 0 ? sizeof(Control) : allocate(bytes);
  if (idle_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    idle_.push_back(slots_.back().get());
  }
  Slot* slot = idle_.back();
  idle_.pop_back();
  slot->offset = offset;
  slot->bytes = bytes;
  slot->held = true;
  return {this, slot, {region_.at(offset), bytes}};
}

std::uint64_t Outbox::expose(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t offset = allocate(bytes);
  std::memset(region_.at(offset), 0, bytes);
  return offset;
}

void Outbox::withdraw(std::uint64_t memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  heap_.free(memory, bytes);
}

bool Outbox::post(const OutgoingRange& range, const MessageHeader& header, Rank to) {
  const std::lock_guard lock(mutex_);
  Destination& destination = destinations_[static_cast<std::size_t>(to)];
  if (destination.dead) return false;
  auto* slot = static_cast<Slot*>(range.handle());
  if (destination.next == kSlots) {
    Chunk* chunk = fresh_chunk(destination);
    const auto offset = reinterpret_cast<std::byte*>(chunk) - region_.at(0);
    destination.tail->slots[kSlots].payload.store(static_cast<std::uint64_t>(offset),
                                                  std::memory_order_seq_cst);
    destination.older.push_back(destination.tail);
    destination.tail = chunk;
    destination.next = 0;
  }
  if (slot->claims.empty()) sent_.push_back(slot);
  slot->claims.push_back({&destination.tail->released[destination.next], to, range.bytes().size()});
  destination.unread += range.bytes().size();
  MessageSlot& message = destination.tail->slots[destination.next++];
  message.header = header;
  message.header.bytes = range.bytes().size();
  // This store publishes the message: a sender killed before it has sent nothing, after it the whole message.
  message.payload.store(slot->offset + range.offset(), std::memory_order_seq_cst);
  return true;
}

bool Outbox::backlogged(Rank to, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Destination& destination = destinations_[static_cast<std::size_t>(to)];
  if (destination.unread <= bytes) return false;
  reclaim();
  return destination.unread > bytes;
}

Chunk* Outbox::fresh_chunk(Destination& destination) {
  constexpr std::size_t kLook = 4;  // different chunks each time: a message held for long blocks only its own
  const auto released = [](const std::atomic<std::uint8_t>& flag) {
    return flag.load(std::memory_order_acquire) != 0;
  };
  for (std::size_t look = std::min(kLook, destination.older.size()); look > 0; --look) {
    Chunk* chunk = destination.older.front();
    destination.older.pop_front();
    if (!released(chunk->passed) || !std::all_of(chunk->released.begin(), chunk->released.end(), released)) {
      destination.older.push_back(chunk);
      continue;
    }
    reclaim();  // settles the claims that point into this chunk before it is overwritten
    for (MessageSlot& message : chunk->slots) message.payload.store(0, std::memory_order_relaxed);
    for (auto& flag : chunk->released) flag.store(0, std::memory_order_relaxed);
    chunk->passed.store(0, std::memory_order_relaxed);
    return chunk;
  }
  return new (region_.at(allocate(sizeof(Chunk)))) Chunk;
}

// Reuses released memory first. Before the region grows, messages to dead ranks are released, too.
std::uint64_t Outbox::allocate(std::size_t bytes) {
  const bool small = heap_.has_small(bytes);
  if (small ? sent_.size() >= reclaim_at_ : sent_.size() < kManyLarge || sent_.size() >= reclaim_at_)
    reclaim();
  std::uint64_t offset = heap_.allocate(bytes, /*may_grow=*/false);
  if (offset == 0) {
    release_dead_claims();
    reclaim();
    offset = heap_.allocate(bytes, /*may_grow=*/true);
  }
  if (offset == 0) throw Error(full_message(bytes));
  return offset;
}

void Outbox::give_back(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  auto* slot = static_cast<Slot*>(handle);
  slot->held = false;
  if (slot->claims.empty()) free_slot(slot);
}

// True if no claim is left.
bool Outbox::reclaim_slot(Slot& slot) {
  std::erase_if(slot.claims, [&](const Claim& claim) {
    Destination& destination = destinations_[static_cast<std::size_t>(claim.to)];
    const bool done = claim.released->load(std::memory_order_acquire) != 0 || destination.dead;
    if (done) destination.unread -= claim.bytes;
    return done;
  });
  return slot.claims.empty();
}

void Outbox::reclaim() {
  std::erase_if(sent_, [&](Slot* slot) {
    if (!reclaim_slot(*slot)) return false;
    if (!slot->held) free_slot(slot);
    return true;
  });
  reclaim_at_ = std::max(kFewest, 2 * sent_.size());
}

void Outbox::release_dead_claims() {
  for (std::size_t to = 0; to < destinations_.size(); ++to)
    if (static_cast<Rank>(to) != rank_ && !destinations_[to].dead && !alive_(static_cast<Rank>(to)))
      destinations_[to].dead = true;
}

void Outbox::free_slot(Slot* slot) {
  if (slot->bytes > 0) heap_.free(slot->offset, slot->bytes);
  idle_.push_back(slot);
}

std::string Outbox::full_message(std::size_t bytes) const {
  std::map<Rank, std::uint64_t> held;
  for (const Slot* slot : sent_)
    for (const Claim& claim : slot->claims) held[claim.to] += claim.bytes;
  std::string holders;
  for (const auto& [to, amount] : held)
    holders += fmt::format("{}rank {} holds {}", holders.empty() ? "" : ", ", to, amount);
  return fmt::format("no room for a message of {} bytes: {} of {} bytes are waiting to be read ({})", bytes,
                     heap_.used(), heap_.limit(), holders.empty() ? "no rank holds any" : holders);
}

Inbox::Inbox(Rank rank, const Regions& regions, std::function<bool()> ours)
    : regions_(regions),
      ours_(std::move(ours)),
      positions_(std::make_unique<ReadPosition[]>(regions.size())) {
  for (std::size_t r = 0; r < regions.size(); ++r) {
    positions_[r].chunk = regions[r]->as<Chunk>(chunk_offset(rank));
    positions_[r].head.store(&positions_[r].chunk->slots[0].payload);
  }
}

std::optional<Arrival> Inbox::poll(Rank source) {
  if (!waiting(source)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  ReadPosition& at = position(source);
  const Region& theirs = *regions_[static_cast<std::size_t>(source)];
  for (;;) {
    const std::uint64_t offset = at.chunk->slots[at.next].payload.load(std::memory_order_acquire);
    if (offset == 0) return std::nullopt;
    Chunk* chunk = at.chunk;
    const std::size_t index = at.next;
    // Copied before it is checked: a faulty sender could change it afterwards.
    const MessageHeader header = chunk->slots[index].header;
    if (index < kSlots && !Region::contains(offset, header.bytes))
      refuse_memory_of(source, fmt::format("a message of {} bytes at offset {} is outside the region",
                                           header.bytes, offset));
    if (index == kSlots) {
      if (offset % alignof(Chunk) != 0 || !Region::contains(offset, sizeof(Chunk)))
        refuse_memory_of(
            source,
            fmt::format("its message list continues at offset {}, which is outside the region", offset));
      at.chunk = theirs.as<Chunk>(offset);
      at.next = 0;
      chunk->passed.store(1, std::memory_order_release);
    } else {
      ++at.next;
    }
    at.head.store(&at.chunk->slots[at.next].payload, std::memory_order_release);
    if (index == kSlots) continue;
    return Arrival(this, source, &chunk->released[index], header, {theirs.at(offset), header.bytes});
  }
}

void Inbox::done_with(void* handle) noexcept {
  if (!ours_()) return;  // a forked child: the parent still reads the message
  static_cast<std::atomic<std::uint8_t>*>(handle)->store(1, std::memory_order_release);
}

namespace {

/// The fabric of one rank over shared memory. Thread-safe.
class LocalFabric final : public Fabric {
 public:
  LocalFabric(Rank rank, Regions regions, PeerProcesses peers, const LocalOptions& options)
      : rank_(rank),
        size_(static_cast<Rank>(regions.size())),
        regions_(std::move(regions)),
        processes_(std::move(peers)),
        board_(rank, regions_),
        outbox_(rank, size_, *regions_[static_cast<std::size_t>(rank)], options.memory_limit,
                [this](Rank peer) { return alive(peer); }),
        inbox_(rank, regions_, [this] { return forks_so_far() == forks_; }),
        enough_cores_(size_ <= usable_cores()),
        forks_(forks_so_far()) {
    control(rank_).presence.store(Presence::present, std::memory_order_release);
  }

  ~LocalFabric() override {
    if (forks_so_far() == forks_) leave();  // a forked child must not say that its parent leaves
  }

  void leave() override {
    control(rank_).presence.store(Presence::left, std::memory_order_release);
    for (Rank r = 0; r < size_; ++r) wake(r);
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Board& board() override { return board_; }

  Outgoing reserve(std::size_t bytes) override {
    check_process();
    return outbox_.reserve(bytes);
  }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    check_process();
    if (!outbox_.post(range, header, to)) return;
    Control& own = control(rank_);
    own.posted_name.store(header.name, std::memory_order_relaxed);
    own.posted_step.store(header.step, std::memory_order_relaxed);
    wake(to);
  }

  bool backlogged(Rank to, std::uint64_t bytes) override { return outbox_.backlogged(to, bytes); }

  std::optional<Arrival> poll(Rank source) override {
    if (!inbox_.waiting(source)) return std::nullopt;
    check_process();  // before any shared memory is written
    auto arrival = inbox_.poll(source);
    if (!arrival) return arrival;
    nudge();  // another thread may be sleeping until this message arrives
    return arrival;
  }

  void nudge() override {
    polled_.fetch_add(1, std::memory_order_seq_cst);
    wake(rank_);
  }

  Rank ranks_per_host() const override { return size_; }

  std::uint32_t wake_count() const override { return polled_.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    check_process();
    const auto news = [&] {
      return std::any_of(sources.begin(), sources.end(), [&](Rank r) { return inbox_.waiting(r); }) ||
             polled_.load(std::memory_order_seq_cst) != wake_count;
    };
    // Reads the clock only after the first spins have failed.
    Deadline awake_until{};
    do {
      for (int i = 0; i < (enough_cores_ ? kSpins : kYields); ++i) {
        if (news()) return;
        if (enough_cores_) {
          relax();
        } else {
          sched_yield();
        }
      }
      const auto now = Clock::now();
      if (awake_until == Deadline{}) awake_until = std::min(deadline, now + (enough_cores_ ? kSpin : kYield));
      if (now >= awake_until) break;
    } while (true);
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
    if (left.count() <= 0) return;
    // A sender reads `sleepers` after publishing its message; we look for messages after incrementing
    // `sleepers`. All four accesses are sequentially consistent, so that at least one side sees the other.
    Control& own = control(rank_);
    own.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t bell = own.bell.load(std::memory_order_seq_cst);
    if (!news() && !anything_waiting())
      futex_wait(own.bell, bell, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
    own.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  std::uint64_t expose(std::size_t bytes) override {
    check_process();
    return outbox_.expose(bytes);
  }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { outbox_.withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override {
    if (!Region::contains(memory, 1))
      refuse_memory_of(rank, fmt::format("its exposed memory at offset {} is outside the region", memory));
    return regions_[static_cast<std::size_t>(rank)]->at(memory);
  }

  void yield_cpu() override {
    if (!enough_cores_) sched_yield();
  }

  bool alive(Rank peer) const override {
    return peer == rank_ || (control(peer).presence.load(std::memory_order_acquire) != Presence::left &&
                             !processes_.dead(peer));
  }

 private:
  Control& control(Rank r) const { return *regions_[static_cast<std::size_t>(r)]->as<Control>(0); }

  void wake(Rank to) const {
    Control& theirs = control(to);
    if (theirs.sleepers.load(std::memory_order_seq_cst) == 0) return;
    theirs.bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(theirs.bell);
  }

  bool anything_waiting() const {
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_ && inbox_.waiting(r)) return true;
    return false;
  }

  void check_process() const {
    if (forks_so_far() != forks_)
      throw Error(fmt::format(
          "rank {} belongs to the parent of this process; a forked child cannot use its fabric", rank_));
  }

  Rank rank_;
  Rank size_;
  Regions regions_;
  PeerProcesses processes_;
  LocalBoard board_;
  Outbox outbox_;
  Inbox inbox_;
  std::atomic<std::uint32_t> polled_{0};
  bool enough_cores_;
  int forks_;
};

}  // namespace
}  // namespace local

std::shared_ptr<Fabric> join_local(const std::string& job, Rank rank, Rank size,
                                   const LocalOptions& options) {
  local::check_memory_limits(size);
  auto own = local::make_region(rank, size);
  const auto left_region = [size](Rank absent) {
    const auto region = local::make_region(absent, size);
    region->as<local::Control>(0)->presence.store(local::Presence::left, std::memory_order_release);
    return Descriptor(dup(region->descriptor()));
  };
  local::RendezvousResult peers = local::run_rendezvous(job, rank, size, own->descriptor(),
                                                        options.join_timeout, {options.exited, left_region});
  local::Regions regions;
  regions.reserve(peers.regions.size());
  for (std::size_t r = 0; r < peers.regions.size(); ++r) {
    if (static_cast<Rank>(r) == rank) {
      peers.processes[r] = Descriptor();
      regions.push_back(own);
    } else {
      regions.push_back(std::make_shared<local::Region>(local::Region::adopt(std::move(peers.regions[r]))));
    }
  }
  return std::make_shared<local::LocalFabric>(rank, std::move(regions),
                                              local::PeerProcesses(std::move(peers.processes)), options);
}

std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options) {
  local::check_memory_limits(size);
  local::Regions regions;
  regions.reserve(static_cast<std::size_t>(size));
  for (Rank r = 0; r < size; ++r) regions.push_back(local::make_region(r, size));
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (Rank r = 0; r < size; ++r)
    fabrics.push_back(std::make_shared<local::LocalFabric>(
        r, regions, local::PeerProcesses(std::vector<Descriptor>(static_cast<std::size_t>(size))), options));
  return fabrics;
}

}  // namespace starling::fabric

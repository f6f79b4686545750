#include "starling/fabric/faulty/faulty.h"

#include <atomic>
#include <deque>
#include <fmt/format.h>
#include <mutex>
#include <signal.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/fabric/forwarding.h"

namespace starling::fabric {
namespace {

using Clock = std::chrono::steady_clock;

/// Injects all faults except kills on the receiving side, where delaying a message needs no thread.
/// Thread-safe.
class Faulty final : public ForwardingFabric {
 public:
  Faulty(std::shared_ptr<Fabric> given, Faults faults)
      : ForwardingFabric(std::move(given)),
        faults_(std::move(faults)),
        pairs_(static_cast<std::size_t>(inner().size())) {}

  /// A dead peer whose delayed messages have not arrived yet counts as alive.
  bool alive(Rank peer) const override {
    if (inner().alive(peer)) return true;
    const std::lock_guard lock(mutex_);
    const auto& held = drained(peer).held;
    return !held.empty() && held.back().due > Clock::now();
  }

  bool loses() const { return faults_.lose > 0; }
  // These optional parts would bypass the faults.
  Admission* admission() override { return nullptr; }
  Collectives* collectives() override { return nullptr; }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    const std::uint64_t number = posts_++;
    for (const auto& [victim, at] : faults_.kills)
      if (victim == rank() && at == number) kill(getpid(), SIGKILL);
    inner().post(range, header, to);
  }

  std::optional<Arrival> poll(Rank source) override {
    const std::lock_guard lock(mutex_);
    Pair& pair = drained(source);
    if (pair.held.empty() || pair.held.front().due > Clock::now()) return std::nullopt;
    Arrival arrival = std::move(pair.held.front().arrival);
    pair.held.pop_front();
    return arrival;
  }

  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    inner().sleep(wake_count, sources, std::min(deadline, next_due()));
  }

 private:
  struct Held {
    Clock::time_point due;
    Arrival arrival;
  };
  struct Pair {
    std::uint64_t seen = 0;
    std::deque<Held> held;
  };

  // Takes all messages from `source` and decides the fault of each.
  Pair& drained(Rank source) const {
    Pair& pair = pairs_[static_cast<std::size_t>(source)];
    while (auto arrival = inner().poll(source)) {
      Random random(faults_.seed, pair.seen++, pair_stream(source));
      if (random.uniform() < faults_.drop) continue;
      const auto kind = static_cast<MessageKind>(arrival->header().kind);
      if ((kind == MessageKind::average || kind == MessageKind::relay) && random.uniform() < faults_.lose)
        arrival->lose();
      auto due = Clock::now();
      if (random.uniform() < faults_.delay)
        due += std::chrono::duration_cast<Clock::duration>(faults_.longest_delay * random.uniform());
      if (!pair.held.empty()) due = std::max(due, pair.held.back().due);  // keeps the order
      pair.held.push_back({due, std::move(*arrival)});
    }
    return pair;
  }

  std::uint32_t pair_stream(Rank source) const {
    return stream::kFaults + (static_cast<std::uint32_t>(source) * static_cast<std::uint32_t>(size()) +
                              static_cast<std::uint32_t>(rank()));
  }

  Deadline next_due() {
    const std::lock_guard lock(mutex_);
    Deadline due = Deadline::max();
    for (const Pair& pair : pairs_)
      if (!pair.held.empty()) due = std::min(due, pair.held.front().due);
    return due;
  }

  Faults faults_;
  std::atomic<std::uint64_t> posts_{0};
  mutable std::mutex mutex_;
  mutable std::vector<Pair> pairs_;  // mutable: alive() takes messages, too
};

}  // namespace

std::shared_ptr<Fabric> make_faulty(std::shared_ptr<Fabric> inner, const Faults& faults) {
  for (const double probability : {faults.drop, faults.lose, faults.delay})
    if (!(probability >= 0 && probability <= 1))
      throw InvalidArgument(fmt::format("faults: the probability {} is not between 0 and 1", probability));
  return std::make_shared<Faulty>(std::move(inner), faults);
}

bool loses_messages(const Fabric& fabric) {
  const auto* faulty = dynamic_cast<const Faulty*>(&fabric);
  return faulty != nullptr && faulty->loses();
}

}  // namespace starling::fabric

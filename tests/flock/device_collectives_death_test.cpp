// Tests operations of starling/flock on device memory when a rank is killed between its message's header and
// its payload: all survivors get the same result, or all throw.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <unistd.h>

#include "flock/deaths.h"
#include "flock/reference.h"
#include "kernel/device_block.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

constexpr Rank kRanks = 4;
constexpr Rank kKilled = 2;

/// Starts an operation on x; `room` gives memory for its result, of the same kind as x.
using StartOn = std::function<Pending(Flock& flock, const DeviceBlock<float>& x, Room room)>;

struct LostOperation {
  const char* name;
  std::size_t count;
  bool has_root;  // the killed rank is the root, so there is no result
  StartOn start;
};

std::vector<LostOperation> lost_operations() {
  const auto sum = [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
    return ByteOperations(flock).allreduce({{x.buffer(), x.buffer()}}, Reduction::sum, "sum");
  };
  return {{"a short sum", 100, false, sum},
          {"a sum in slices", 20'000, false, sum},
          {"a sum by rounds", 100, false,
           [sum](Flock& flock, const DeviceBlock<float>& x, const Room& room) {
             flock.set_allreduce("doubling");
             return sum(flock, x, room);
           }},
          {"reduce_scatter", 1003, false,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             return ByteOperations(flock).reduce_scatter(x.buffer(), std::move(room), Reduction::sum, "part");
           }},
          {"allgather", 100, false,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             return ByteOperations(flock).allgather(x.buffer(), std::move(room), "all");
           }},
          {"neighbor_allgather", 100, false,
           [](Flock& flock, const DeviceBlock<float>& x, Room room) {
             flock.set_schedule("complete");
             return ByteOperations(flock).neighbor_allgather(x.buffer(), std::move(room), "near");
           }},
          {"broadcast", 100, true,
           [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             return ByteOperations(flock).broadcast({{x.buffer(), x.buffer()}}, kKilled, "root");
           }},
          {"recv", 100, true, [](Flock& flock, const DeviceBlock<float>& x, const Room&) {
             const ByteOperations operations(flock);
             if (flock.rank() != kKilled) return operations.recv(x.buffer(), kKilled, "message");
             for (Rank to = 0; to < kRanks; ++to)
               if (to != kKilled) operations.send(x.buffer(), to, "message");
             return Pending();
           }}};
}

/// The result of an operation on one rank: x and the memory from `room`; empty if it threw PeerLost.
using Outcome = std::vector<float>;

std::vector<float> block_of(Rank rank, std::size_t count) {
  return std::vector<float>(count, static_cast<float>(1 << rank));
}

Outcome outcome_of(Flock& flock, const LostOperation& operation, const DeviceBlock<float>& x) {
  kernel::OwnedBuffer memory(DType::float32, 0, MemoryKind::cuda);
  const Room room = [&](std::size_t count) {
    memory = kernel::OwnedBuffer(DType::float32, count, MemoryKind::cuda);
    return memory.buffer();
  };
  x.set(block_of(flock.rank(), operation.count));
  try {
    operation.start(flock, x, room).wait();
  } catch (const PeerLost& lost) {
    require(lost.peer() == kKilled, lost.what());
    require(x.values() == block_of(flock.rank(), operation.count), "an operation that failed has changed x");
    return {};
  }
  Outcome outcome = x.values();
  std::vector<float> more(memory.buffer().count);
  kernel::transfer({DType::float32, more.data(), more.size()}, memory.buffer());
  outcome.insert(outcome.end(), more.begin(), more.end());
  return outcome;
}

enum class LastPayload { held, complete };

/// Kills rank kKilled once the headers of its messages have arrived. `check` examines the survivors' outcome.
void kill_in(const LostOperation& operation, OnPeerFailure policy, LastPayload payload,
             const std::function<void(Flock& flock, const Outcome& whole, const Outcome& last)>& check) {
  const auto ends = device_launchers()[1].run(kRanks, [&](const std::shared_ptr<Fabric>& fabric) {
    static kernel::Flag gate = 0;
    Flock flock(fabric);
    flock.set_timeout(20s);
    flock.on_peer_failure(policy);
    const DeviceBlock<float> x(operation.count);
    const Outcome whole = outcome_of(flock, operation, x);  // also maps every rank's memory
    flock.barrier();
    if (flock.rank() == kKilled) {
      x.set(block_of(kKilled, operation.count));
      kernel::device().register_flags(&gate, sizeof(gate));
      if (payload == LastPayload::held) kernel::device().wait(gate, 1);
      const Pending last = operation.start(flock, x, [](std::size_t) { return Buffer(); });
      if (payload == LastPayload::complete) kernel::device().synchronize();
      usleep(30'000);
      kill(getpid(), SIGKILL);
    }
    check(flock, whole, outcome_of(flock, operation, x));
  });
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    if (rank == kKilled)
      EXPECT_EQ(end.signal, SIGKILL) << operation.name << ": " << end.message;
    else
      EXPECT_TRUE(end.ok) << operation.name << ", rank " << rank << ": " << end.message;
  }
}

// Every rank's contribution is a power of two.
bool has_killed(const Outcome& outcome) {
  return std::any_of(outcome.begin(), outcome.end(),
                     [](float x) { return !std::isnan(x) && (static_cast<int>(x) & (1 << kKilled)) != 0; });
}

TEST(DeviceCollectivesDeathTest, SurvivorsContinueWithoutAMissingPayload) {
  for (const LostOperation& operation : lost_operations())
    kill_in(operation, OnPeerFailure::reweight, LastPayload::held,
            [&](Flock& flock, const Outcome& whole, const Outcome& last) {
              require(last.empty() == operation.has_root, "PeerLost");
              require(has_killed(whole) && !has_killed(last), "an incomplete payload was used");
              if (!operation.has_root && last.size() == operation.count)
                require(last == Outcome(operation.count, 1 + 2 + 8), "not the survivors' sum");
              // The next operation includes the survivors only.
              const DeviceBlock<float> x(std::vector<float>{1});
              ByteOperations(flock).allreduce({{x.buffer(), x.buffer()}}, Reduction::sum, "next").wait();
              require(x.values() == Outcome{kRanks - 1}, "the next sum");
            });
}

// Where the device waits for payloads, the host learns of the loss with the next operation.
TEST(DeviceCollectivesDeathTest, WithoutReweightingALostPayloadIsPeerLostOrNan) {
  for (const LostOperation& operation : lost_operations())
    kill_in(operation, OnPeerFailure::raise, LastPayload::held,
            [](Flock& flock, const Outcome& whole, const Outcome& last) {
              require(has_killed(whole), "the first one");
              if (last.empty()) return;
              require(std::ranges::any_of(last, [](float x) { return std::isnan(x); }) && !has_killed(last),
                      "a result without its input");
              const std::string text = message_of<PeerLost>([&] { flock.barrier(); });
              require(text.find("rank 2") != text.npos, text);
            });
}

// A complete payload counts as received even if its sender dies. But a dead rank no longer computes its slice
// for others.
TEST(DeviceCollectivesDeathTest, SurvivorsAgreeWhenThePayloadWasComplete) {
  for (const LostOperation& operation : lost_operations())
    kill_in(operation, OnPeerFailure::reweight, LastPayload::complete,
            [&](Flock& flock, const Outcome& whole, const Outcome& last) {
              const std::string name = operation.name;
              if (name == "a short sum" || name == "allgather" || name == "reduce_scatter" ||
                  name == "neighbor_allgather" || operation.has_root)
                require(last == whole, "a complete payload was left out");
              for (const std::int64_t other :
                   flock.allgather(std::vector{std::int64_t{has_killed(last) ? 1 : 0}}, "compare"))
                require(other == (has_killed(last) ? 1 : 0), "survivors differ");
            });
}

// A rank is killed at a random moment: the survivors' results of every operation are equal.
TEST(DeviceCollectivesDeathTest, SurvivorsAgreeWheneverARankIsKilled) {
  for (unsigned run = 0; run < soak_runs(); ++run) {
    const auto killed = static_cast<Rank>(run % kRanks);
    const auto ends = device_launchers()[1].run(kRanks, [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(30s);
      flock.on_peer_failure(OnPeerFailure::reweight);
      const ByteOperations operations(flock);
      if (flock.rank() == killed) {
        const pid_t victim = getpid();
        if (fork() == 0) {
          usleep(5000 + 7919 * run % 150'000);
          kill(victim, SIGKILL);
          _exit(0);
        }
      }
      std::vector<double> results;
      kernel::OwnedBuffer memory;
      const Room room = [&](std::size_t count) {
        memory = kernel::OwnedBuffer(DType::int32, count, MemoryKind::cuda);
        return memory.buffer();
      };
      for (int left = 3; left > 0;) {
        const DeviceBlock<std::int64_t> bits(std::vector<std::int64_t>{1 << flock.rank()});
        const DeviceBlock<double> large(std::vector<double>(6000, 1 << flock.rank()));
        const DeviceBlock<std::int32_t> own(std::vector<std::int32_t>{flock.rank()});
        operations.allreduce({{bits.buffer(), bits.buffer()}}, Reduction::sum, "bits").wait();
        operations.allreduce({{large.buffer(), large.buffer()}}, Reduction::average, "large").wait();
        operations.allgather(own.buffer(), room, "ranks").wait();
        std::vector<std::int32_t> ranks(memory.buffer().count);
        kernel::transfer({DType::int32, ranks.data(), ranks.size()}, memory.buffer());
        const DeviceBlock<double> word(std::vector<double>{static_cast<double>(results.size())});
        try {
          operations.broadcast({{word.buffer(), word.buffer()}}, ranks.front(), "word").wait();
          results.push_back(word.values()[0]);
        } catch (const PeerLost& lost) {
          require(lost.peer() == killed, lost.what());
          results.push_back(-1);
        }
        const auto averages = large.values();
        require(averages == std::vector<double>(6000, averages[0]), "an average of different contributors");
        results.push_back(averages[0]);
        results.push_back(static_cast<double>(bits.values()[0]));
        results.insert(results.end(), ranks.begin(), ranks.end());
        if ((bits.values()[0] & (1 << killed)) == 0) --left;
      }
      const auto all = flock.allgather(results, "results");
      require(all.size() == (kRanks - 1) * results.size(), "survivors have results of different lengths");
      for (std::size_t i = 0; i < all.size(); ++i)
        require(all[i] == results[i % results.size()], "survivors differ");
    });
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(rank == killed || ends[static_cast<std::size_t>(rank)].ok)
          << "run " << run << ", rank " << rank << ": " << ends[static_cast<std::size_t>(rank)].message;
  }
}

}  // namespace
}  // namespace starling::flock

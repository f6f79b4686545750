// Tests neighbor averages on device memory (starling/flock/neighbor_average.h) when a rank is killed:
// survivors continue within a second, with the bits that host memory gives without the dead rank.
#include <csignal>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/deaths.h"
#include "flock/reference.h"
#include "kernel/device_block.h"
#include "starling/kernel/combine.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

using kernel::DeviceBlock;

constexpr Rank kDeviceRanks = 4;
constexpr Rank kDeviceVictim = 2;
constexpr std::size_t kDeviceCount = 2000;

enum class Payload { none, held, complete };

Pending average_on_device(Flock& flock, const DeviceBlock<float>& x) {
  return ByteOperations(flock).neighbor_allreduce({{x.buffer(), x.buffer()}}, {}, "device");
}

// Computes one step on the host; without the victim, its weight goes to `rank`.
std::vector<float> step_of(const Schedule& schedule, Step step, Rank rank, bool without_victim) {
  std::vector<std::vector<float>> blocks;
  for (Rank r = 0; r < kDeviceRanks; ++r)
    blocks.push_back(start_block<float>(r, kDeviceCount, static_cast<std::uint64_t>(step)));
  const Exchange exchange = schedule.exchange(step, rank);
  std::vector<std::pair<Rank, double>> shares;
  double own = exchange.self_weight;
  if (exchange.group.size() > 0) own = 1.0 / static_cast<double>(exchange.group.size());
  const auto add = [&](Rank source, double weight) {
    if (source == kDeviceVictim && without_victim)
      own += weight;
    else
      shares.emplace_back(source, weight);
  };
  if (exchange.group.size() == 0) shares.emplace_back(rank, 0);
  for (const Source& source : exchange.sources) add(source.rank, source.weight);
  for (std::int64_t i = 0; i < exchange.group.size(); ++i)
    add(exchange.group[i], 1.0 / static_cast<double>(exchange.group.size()));
  std::vector<Term> terms;
  for (const auto& [source, weight] : shares)
    terms.push_back({blocks[static_cast<std::size_t>(source)].data(), source == rank ? own : weight});
  std::vector<float> result(kDeviceCount);
  combine(DType::float32, result.data(), terms, kDeviceCount);
  return result;
}

// Whether `rank` needs a message of the victim in this step.
bool hears_the_victim(const Schedule& schedule, Step step, Rank rank) {
  const Exchange exchange = schedule.exchange(step, rank);
  return exchange.group.size() > 0 ||
         std::any_of(exchange.sources.begin(), exchange.sources.end(),
                     [](const Source& source) { return source.rank == kDeviceVictim; });
}

void survive(const std::shared_ptr<Fabric>& fabric, const std::string& spec, Payload payload) {
  constexpr Step kLast = 3;
  static kernel::Flag gate = 0;
  Flock flock(fabric);
  flock.set_timeout(20s);
  flock.on_peer_failure(OnPeerFailure::reweight);
  flock.set_schedule(spec);
  const SchedulePtr schedule = make_schedule(spec, kDeviceRanks);
  const Rank rank = flock.rank();
  std::vector<DeviceBlock<float>> x;
  for (Step step = 0; step <= kLast; ++step)
    x.emplace_back(start_block<float>(rank, kDeviceCount, static_cast<std::uint64_t>(step)));
  for (std::size_t step = 0; step < kLast; ++step) average_on_device(flock, x[step]).wait();
  std::vector<std::int32_t> word(1);
  if (rank == kDeviceVictim) {
    kernel::device().register_flags(&gate, sizeof(gate));
    kernel::device().synchronize();
    if (payload == Payload::held) kernel::device().wait(gate, 1);
    if (payload != Payload::none) {
      Pending last = average_on_device(flock, x[kLast]);
      if (payload == Payload::complete) last.wait();
      for (Rank other = 0; other < kDeviceRanks; ++other)
        if (other != kDeviceVictim) flock.recv(word, other, "heard");
      if (payload == Payload::complete) kernel::device().synchronize();
    }
    kill(getpid(), SIGKILL);
  }
  average_on_device(flock, x[kLast]).wait();
  flock.send(word, kDeviceVictim, "heard");
  if (!eventually([&] { return !fabric->alive(kDeviceVictim); }))
    throw Error("the victim is not reported dead");
  const auto dead = std::chrono::steady_clock::now();
  for (Step step = 0; step <= kLast; ++step) {
    const bool missing =
        step == kLast && payload != Payload::complete && hears_the_victim(*schedule, step, rank);
    require(same_bits(x[static_cast<std::size_t>(step)].values(), step_of(*schedule, step, rank, missing)),
            fmt::format("{}, step {}: not the host's bits", spec, step));
  }
  require(std::chrono::steady_clock::now() - dead < 1s, "survivors wait for the dead rank");
  // In the next view, host and device memory give the same results again.
  for (int step = 0; step < 30; ++step) average_on_device(flock, x[0]).wait();
  require(flock.view().members.size() == kDeviceRanks - 1, "the view");
  for (int step = 0; step < 4; ++step) {
    auto on_host = start_block<float>(rank, kDeviceCount);
    const DeviceBlock<float> on_device(on_host);
    flock.set_schedule(spec);
    average_on_device(flock, on_device).wait();
    flock.set_schedule(spec);
    flock.neighbor_allreduce(on_host, "host");
    require(same_bits(on_device.values(), on_host), fmt::format("{} after the death", spec));
  }
}

class DeviceAverageDeathTest : public testing::TestWithParam<Payload> {};

TEST_P(DeviceAverageDeathTest, SurvivorsHaveTheBitsOfTheHostWithoutTheVictim) {
  for (const std::string spec : {"ring", "exponential", "complete", "one-peer-exponential"}) {
    const auto ends = device_launchers()[1].run(
        kDeviceRanks, [&](const std::shared_ptr<Fabric>& fabric) { survive(fabric, spec, GetParam()); });
    for (Rank rank = 0; rank < kDeviceRanks; ++rank) {
      const RankEnd& end = ends[static_cast<std::size_t>(rank)];
      if (rank == kDeviceVictim)
        EXPECT_EQ(end.signal, SIGKILL) << spec << ": " << end.message;
      else
        EXPECT_TRUE(end.ok) << spec << ", rank " << rank << ": " << end.message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Payloads, DeviceAverageDeathTest,
                         testing::Values(Payload::none, Payload::held, Payload::complete),
                         [](const testing::TestParamInfo<Payload>& test) {
                           return std::string(test.param == Payload::none   ? "BeforeIt"
                                              : test.param == Payload::held ? "WhileItIsWritten"
                                                                            : "AfterIt");
                         });

// The victim is killed at a random moment: weights sum to one in every step of the survivors.
TEST(DeviceAverageDeathsTest, RowsSumToOneWheneverARankIsKilled) {
  for (unsigned run = 0; run < soak_runs(); ++run) {
    const std::string spec = run % 3 == 0 ? "exponential" : run % 3 == 1 ? "complete" : "periodic(ring,h=2)";
    const auto ends = device_launchers()[1].run(kDeviceRanks, [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(20s);
      flock.on_peer_failure(OnPeerFailure::reweight);
      flock.set_schedule(spec);
      if (flock.rank() == kDeviceVictim) {
        const pid_t victim = getpid();
        if (fork() == 0) {
          usleep(3000 + 2711 * run % 20'000);
          kill(victim, SIGKILL);
          _exit(0);
        }
      }
      const DeviceBlock<float> x(std::vector<float>{1, static_cast<float>(flock.rank())});
      for (int step = 0; step < 400 || flock.view().members.size() == kDeviceRanks; ++step) {
        average_on_device(flock, x).wait();
        if (step % 16 == 0) require(std::abs(x.values()[0] - 1) < 1e-6, "the weights sum to one");
      }
      require(std::abs(x.values()[0] - 1) < 1e-6, "the weights sum to one");
    });
    for (Rank rank = 0; rank < kDeviceRanks; ++rank)
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)].ok, rank != kDeviceVictim)
          << spec << ", rank " << rank << ": " << ends[static_cast<std::size_t>(rank)].message;
  }
}

// With the policy `raise`, the survivors' error names the dead rank, as with host memory.
TEST(DeviceAverageDeathsTest, WithoutReweightingTheNextAverageThrows) {
  const auto ends = device_launchers()[1].run(3, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    flock.set_schedule("complete");
    const DeviceBlock<float> x(std::vector<float>(100, 1));
    for (int step = 0; step < 1000; ++step) {
      if (flock.rank() == 2 && step == 5) kill(getpid(), SIGKILL);
      average_on_device(flock, x).wait();
    }
  });
  for (const std::size_t rank : {0U, 1U})
    EXPECT_NE(ends[rank].message.find("rank 2 is lost"), std::string::npos) << ends[rank].message;
}

}  // namespace
}  // namespace starling::flock

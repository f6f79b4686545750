#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_rank.h"
#include "starling/base/os/child.h"
#include "starling/base/random.h"
#include "starling/kernel/transfer.h"
#include "starling/launch/environment.h"

// One of four processes on a GPU is killed at a random moment of a training step.

namespace starling::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Rank kRanks = 4;
// After this many steps that begin after the kill, each survivor has needed the others' messages.
constexpr int kStepsAfter = 3;
constexpr std::chrono::seconds kPatience{60};

struct RankLog {
  std::atomic<long> steps{0};
  std::atomic<std::int64_t> recovered{0};  // when kStepsAfter steps had ended
  std::atomic<bool> agreed{false};         // the flock continues with three ranks
  std::array<char, 400> error{};
};

/// Shared by the ranks and the process that kills one. Times are of the steady clock.
struct KillLog {
  std::atomic<std::int64_t> killed{0};
  std::atomic<long> last_step{std::numeric_limits<long>::max()};
  std::array<RankLog, kRanks> rank;
};

std::int64_t now() {
  return Clock::now().time_since_epoch().count();
}

void train_until_told(const std::string& job, Rank rank, std::size_t elements, KillLog& log) {
  RankLog& mine = log.rank[static_cast<std::size_t>(rank)];
  GpuTraining training(job, rank, kRanks, elements);
  training.rank.flock.on_peer_failure(OnPeerFailure::reweight);
  std::vector<float> ones(elements, 1);
  kernel::transfer(training.x.buffer(), {DType::float32, ones.data(), elements});
  training.driver.parameters_changed();
  int after = 0;
  for (long step = 0; step < log.last_step; ++step) {
    const std::int64_t began = now();
    training.step();
    kernel::device().synchronize();
    mine.steps = step + 1;
    const std::int64_t killed = log.killed;
    if (killed == 0 || began < killed) continue;
    if (++after == kStepsAfter) mine.recovered = now();
    mine.agreed = training.rank.flock.view().members.size() == kRanks - 1;
  }
  // Averages of ones are ones, whichever rank is missing.
  kernel::transfer({DType::float32, ones.data(), elements}, training.x.buffer());
  for (const float value : ones)
    if (std::abs(value - 1) > 1e-4F) throw Error(fmt::format("an average of ones is {}", value));
}

[[noreturn]] void be_rank(const std::string& job, Rank rank, std::size_t elements, KillLog& log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    train_until_told(job, rank, elements, log);
    _exit(0);
  } catch (const std::exception& error) {
    auto& text = log.rank[static_cast<std::size_t>(rank)].error;
    std::strncpy(text.data(), error.what(), text.size() - 1);
    _exit(1);
  }
}

/// The four processes; those that remain are killed at the end.
class Victims {
 public:
  Victims(std::size_t elements, KillLog& log) : log_(log) {
    const std::string job = launch::random_token();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const pid_t pid = fork();
      if (pid < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
      if (pid == 0) be_rank(job, rank, elements, log);
      pids_[static_cast<std::size_t>(rank)] = pid;
    }
  }
  ~Victims() {
    for (const pid_t pid : pids_)
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }
  Victims(const Victims&) = delete;
  Victims& operator=(const Victims&) = delete;

  void kill_rank(std::size_t rank) {
    log_.killed = now();
    kill(pids_[rank], SIGKILL);
    waitpid(pids_[rank], nullptr, 0);
    pids_[rank] = 0;
  }

  /// Waits until the condition holds for every rank that was not killed; throws if one has ended before.
  template <typename Condition>
  void await(const std::string& what, const Condition& condition) {
    const auto deadline = Clock::now() + kPatience;
    for (std::size_t rank = 0; rank < pids_.size();) {
      if (pids_[rank] == 0 || condition(log_.rank[rank])) {
        ++rank;
        continue;
      }
      check_alive();
      if (Clock::now() > deadline) throw Error(fmt::format("rank {} has not {}", rank, what));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  /// Waits until all survivors have ended.
  void finish() {
    const auto deadline = Clock::now() + kPatience;
    while (std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; })) {
      check_alive();
      if (Clock::now() > deadline) throw Error("the survivors do not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  // Reaps ranks that have ended successfully.
  void check_alive() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      if (status == 0) continue;
      const std::string said = log_.rank[rank].error.data();
      throw Error(fmt::format("rank {}: {}", rank, said.empty() ? Ending{status}.text() : said));
    }
  }

  KillLog& log_;
  std::array<pid_t, kRanks> pids_{};
};

// Seconds from the kill to the last survivor's recovery.
double kill_one(std::uint64_t run, std::size_t elements) {
  const Shared<KillLog> log;
  Victims ranks(elements, *log);
  ranks.await("trained", [](const RankLog& rank) { return rank.steps >= 5; });
  Random random(run, 0, 0);
  std::this_thread::sleep_for(std::chrono::duration<double>(0.02 * random.uniform()));
  ranks.kill_rank(run % kRanks);
  ranks.await("gone on", [](const RankLog& rank) { return rank.recovered != 0 && rank.agreed; });
  long furthest = 0;
  std::int64_t last = 0;
  for (const RankLog& rank : log->rank) {
    furthest = std::max(furthest, rank.steps.load());
    last = std::max(last, rank.recovered.load());
  }
  log->last_step = furthest + 20;
  ranks.finish();
  return std::chrono::duration<double>(Clock::duration(last - log->killed)).count();
}

}  // namespace

GpuCase gpu_kill_case() {
  GpuCase made{.name = "one of four is killed",
               .ranks = kRanks,
               .unit = GpuCase::Unit::seconds,
               .bar = 1,
               .worst = true};
  made.measure = [](const GpuSettings& settings) {
    std::vector<GpuRound> rounds;
    for (int run = 0; run < settings.kills; ++run) {
      const double seconds = kill_one(static_cast<std::uint64_t>(run), settings.elements / 10);
      rounds.push_back({seconds, seconds});
    }
    return rounds;
  };
  return made;
}

}  // namespace starling::bench

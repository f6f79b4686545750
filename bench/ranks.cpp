#include "bench/ranks.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/os/child.h"
#include "starling/base/os/descriptor.h"

namespace starling::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The header of one rank's results in shared memory.
struct Report {
  std::size_t results;
  char error[480];
};

// Anonymous memory that this process shares with its ranks.
class SharedMemory {
 public:
  SharedMemory(int ranks, std::size_t most_results)
      : stride_((sizeof(Report) + most_results * sizeof(double) + 63) / 64 * 64),
        bytes_(kHead + static_cast<std::size_t>(ranks) * stride_) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Error(fmt::format("cannot share memory: {}", std::strerror(errno)));
    base_ = static_cast<std::byte*>(memory);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier(), &shared, static_cast<unsigned>(ranks));
    pthread_barrierattr_destroy(&shared);
  }
  // The barrier is not destroyed: that would wait for a killed rank inside it.
  ~SharedMemory() { munmap(base_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  pthread_barrier_t* barrier() const { return reinterpret_cast<pthread_barrier_t*>(base_); }
  Report& report(int rank) const {
    return *reinterpret_cast<Report*>(base_ + kHead + static_cast<std::size_t>(rank) * stride_);
  }
  double* results(int rank) const { return reinterpret_cast<double*>(&report(rank) + 1); }

 private:
  static constexpr std::size_t kHead = 64;
  static_assert(sizeof(pthread_barrier_t) <= kHead);

  std::size_t stride_;
  std::size_t bytes_;
  std::byte* base_ = nullptr;
};

[[noreturn]] void be_rank(int rank, pid_t parent, std::size_t most_results, const SharedMemory& memory,
                          const RankBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  Report& report = memory.report(rank);
  try {
    const auto meet = [&] { pthread_barrier_wait(memory.barrier()); };
    const std::vector<double> results = body(rank, meet);
    if (results.size() > most_results) throw Error("more results than promised");
    std::copy(results.begin(), results.end(), memory.results(rank));
    report.results = results.size();
    _exit(0);
  } catch (const std::exception& error) {
    std::strncpy(report.error, error.what(), sizeof report.error - 1);  // the memory is zeroed
    _exit(1);
  }
}

// The processes; the destructor kills and reaps those that remain.
class Ranks {
 public:
  ~Ranks() {
    for (const Child& child : children_)
      if (child.pidfd) kill(child.pid, SIGKILL);
    for (Child& child : children_)
      if (child.pidfd) reap(child);
  }

  void add(pid_t pid) {
    children_.push_back({pid, Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))});
    if (children_.back().pidfd) return;
    const int error = errno;
    kill(pid, SIGKILL);
    reap(children_.back());
    throw Error(fmt::format("cannot watch a process: {}", std::strerror(error)));
  }

  /// Reaps the next process that ends; {-1, 0} if there are none left, Error at the deadline.
  std::pair<int, Ending> next(Clock::time_point deadline) {
    std::vector<pollfd> watched;
    std::vector<int> ranks;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (!children_[i].pidfd) continue;
      watched.push_back({children_[i].pidfd.get(), POLLIN, 0});
      ranks.push_back(static_cast<int>(i));
    }
    if (watched.empty()) return {-1, {}};
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) throw Error("time limit reached: ranks are stuck or far too slow");
      poll(watched.data(), watched.size(), static_cast<int>(left.count()) + 1);
      for (std::size_t i = 0; i < watched.size(); ++i)
        if (watched[i].revents != 0) return {ranks[i], {reap(children_[static_cast<std::size_t>(ranks[i])])}};
    }
  }

 private:
  struct Child {
    pid_t pid;
    Descriptor pidfd;  // empty once reaped
  };

  static int reap(Child& child) {
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.pidfd.reset();
    return status;
  }

  std::vector<Child> children_;
};

}  // namespace

std::vector<std::vector<double>> run_ranks(int ranks, std::size_t most_results, std::chrono::seconds limit,
                                           const RankBody& body) {
  const auto deadline = Clock::now() + limit;
  const SharedMemory memory(ranks, most_results);
  const pid_t parent = getpid();
  Ranks running;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (pid == 0) be_rank(rank, parent, most_results, memory, body);
    running.add(pid);
  }
  for (;;) {
    const auto [rank, ending] = running.next(deadline);
    if (rank < 0) break;
    if (!ending.failed()) continue;
    const std::string said = memory.report(rank).error;
    throw Error(fmt::format("rank {}: {}", rank, said.empty() ? ending.text() : said));
  }
  std::vector<std::vector<double>> results;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* first = memory.results(rank);
    results.emplace_back(first, first + memory.report(rank).results);
  }
  return results;
}

std::vector<double> slowest(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> most = by_rank.front();
  for (const std::vector<double>& rank : by_rank)
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], rank.at(i));
  return most;
}

}  // namespace starling::bench

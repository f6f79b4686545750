#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/os/descriptor.h"
#include "starling/launch/launcher.h"

// Tests ranks that are forks of the launcher.
namespace starling::launch {
namespace {

constexpr int kRanks = 3;

struct Seen {
  int rank = -1;
  pid_t parent = 0;
  bool own_environment = false, shown_environment = false, closed = false, kept = false;
};

// Memory in which ranks report to the test.
struct Shared {
  Seen ranks[kRanks];
};

Shared* shared_memory() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Shared;
}

int rank_of_this_process() {
  return std::atoi(std::getenv("STARLING_RANK"));
}

// Runs the job in a child process, since a launcher reaps all of its children.
int status_of_job(const std::function<int()>& body, bool continues = false) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    LaunchOptions options;
    options.ranks = kRanks;
    options.body = body;
    options.environment = {"FOR_ALL=1"};
    options.share_output = true;
    options.continues = continues;
    _exit(launch(options));
  }
  int status = 0;
  waitpid(launcher, &status, 0);
  return WEXITSTATUS(status);
}

TEST(ForkedRanks, HaveTheirOwnEnvironmentAndOnlyInheritedDescriptors) {
  Shared* shared = shared_memory();
  const Descriptor closed(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor kept(open("/dev/null", O_RDONLY));
  const int status = status_of_job([&] {
    const int rank = rank_of_this_process();
    Seen& seen = shared->ranks[rank];
    seen.rank = rank;
    seen.closed = fcntl(closed.get(), F_GETFD) < 0;  // before its number is reused
    seen.kept = fcntl(kept.get(), F_GETFD) >= 0;
    seen.parent = getppid();
    seen.own_environment = std::getenv("FOR_ALL") != nullptr && std::getenv("PATH") != nullptr;
    std::ifstream file("/proc/self/environ");
    const std::string shown{std::istreambuf_iterator<char>(file), {}};
    seen.shown_environment = shown.find("STARLING_RANK=" + std::to_string(rank)) != std::string::npos;
    return 0;
  });
  EXPECT_EQ(status, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Seen& seen = shared->ranks[rank];
    EXPECT_EQ(seen.rank, rank);
    EXPECT_EQ(seen.parent, shared->ranks[0].parent);
    EXPECT_TRUE(seen.own_environment);
    EXPECT_TRUE(seen.shown_environment);
    EXPECT_TRUE(seen.closed);
    EXPECT_TRUE(seen.kept);
  }
}

TEST(ForkedRanks, TheFirstStatusThatIsNotZeroIsTheJobs) {
  EXPECT_EQ(status_of_job([] { return rank_of_this_process() == 1 ? 7 : 0; }), 7);
}

TEST(ForkedRanks, AnExceptionIsStatus2) {
  EXPECT_EQ(status_of_job([]() -> int {
              if (rank_of_this_process() == 2) throw std::runtime_error("a rank of the test fails");
              return 0;
            }),
            2);
}

TEST(ForkedRanks, AKilledRankLeavesTheOthersRunningWhereTheyContinue) {
  Shared* shared = shared_memory();
  EXPECT_EQ(status_of_job(
                [&] {
                  const int rank = rank_of_this_process();
                  if (rank == 1) raise(SIGKILL);
                  shared->ranks[rank].rank = rank;
                  return 0;
                },
                true),
            0);
  EXPECT_EQ(shared->ranks[0].rank, 0);
  EXPECT_EQ(shared->ranks[1].rank, -1);
  EXPECT_EQ(shared->ranks[2].rank, 2);
}

}  // namespace
}  // namespace starling::launch

// Covers join() (starling/flock/join.cpp).
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "starling/flock/flock.h"
#include "starling/flock/join_threads.h"

// Tests how a process reads the variables that launchers set.

namespace starling::flock {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Runs `body` in a child with only these variables set; returns its exit status.
int in_child(const Variables& variables, const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    for (const char* name : {"STARLING_RANK", "STARLING_SIZE", "STARLING_JOB", "STARLING_TIMEOUT", "RANK",
                             "WORLD_SIZE", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    try {
      _exit(body() ? 0 : 1);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      _exit(2);
    }
  }
  return child;
}

bool ended_well(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Convention {
  const char* name;
  const char* rank;
  const char* size;
  const char* job;
};

class JoinTest : public testing::TestWithParam<Convention> {};

TEST_P(JoinTest, ThreeProcessesFindEachOther) {
  const Convention& convention = GetParam();
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(in_child({{convention.rank, std::to_string(rank)},
                                 {convention.size, "3"},
                                 {convention.job, fmt::format("join-test-{}", getpid())}},
                                [rank] {
                                  Flock flock = join();
                                  std::vector<double> x = {1.0 * flock.rank()};
                                  flock.average(x);
                                  return flock.rank() == rank && flock.size() == 3 && x[0] == 1;
                                }));
  for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, JoinTest,
    testing::Values(Convention{"starling", "STARLING_RANK", "STARLING_SIZE", "STARLING_JOB"},
                    Convention{"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
                    Convention{"torchrun", "RANK", "WORLD_SIZE", "MASTER_PORT"},
                    Convention{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"}),
    [](const testing::TestParamInfo<Convention>& test) { return test.param.name; });

// One Slurm allocation may run several steps, even at the same time.
TEST(Join, StepsOfOneSlurmJobAreSeparateFlocks) {
  std::vector<pid_t> children;
  for (int step = 0; step < 2; ++step)
    for (int rank = 0; rank < 2; ++rank)
      children.push_back(in_child({{"SLURM_PROCID", std::to_string(rank)},
                                   {"SLURM_NTASKS", "2"},
                                   {"SLURM_JOB_ID", fmt::format("join-test-{}-steps", getpid())},
                                   {"SLURM_STEP_ID", std::to_string(step)}},
                                  [step] {
                                    Flock flock = join();
                                    std::vector<double> x = {10.0 * step + flock.rank()};
                                    flock.average(x);
                                    return x[0] == 10.0 * step + 0.5;
                                  }));
  for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
}

// Repeated many times, since this tests a race.
TEST(Join, JoiningAgainGivesTheSameFlockUntilItIsLeft) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank)
    children.push_back(in_child({{"STARLING_RANK", std::to_string(rank)},
                                 {"STARLING_SIZE", "3"},
                                 {"STARLING_JOB", fmt::format("join-test-{}-again", getpid())}},
                                [] {
                                  for (int k = 0; k < 100; ++k) {
                                    Flock flock = join();
                                    if (!(join() == flock)) return false;
                                    if (k % 10 != 0) continue;  // leaves at once
                                    std::vector<double> x = {1.0 * flock.rank() + k};
                                    flock.average(x);
                                    if (x[0] != 1 + k) return false;
                                  }
                                  return true;
                                }));
  for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
}

TEST(Join, ThreadsThatJoinAtTheSameTimeGetTheSameFlock) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank)
    children.push_back(in_child({{"STARLING_RANK", std::to_string(rank)},
                                 {"STARLING_SIZE", "2"},
                                 {"STARLING_JOB", fmt::format("join-test-{}-threads", getpid())}},
                                [] {
                                  for (int k = 0; k < 50; ++k) {
                                    std::vector<std::optional<Flock>> flocks(4);
                                    std::vector<std::thread> threads;
                                    for (auto& flock : flocks)
                                      threads.emplace_back([&flock] { flock = join(); });
                                    for (std::thread& thread : threads) thread.join();
                                    for (const auto& flock : flocks)
                                      if (!(*flock == *flocks[0])) return false;
                                    flocks[0]->barrier();
                                  }
                                  return true;
                                }));
  for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
}

TEST(Join, RanksMayBeThreadsOfOneProcess) {
  std::vector<Flock> flocks = join_as_threads(3);
  std::vector<std::int64_t> sums(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 3; ++r)
      threads.emplace_back([&sums, r, flock = std::move(flocks[r])]() mutable {
        std::vector<std::int64_t> x = {flock.rank() + 1};
        flock.allreduce(x, Reduction::sum);
        sums[r] = x[0] * 10 + flock.local_size();
      });
  }
  EXPECT_EQ(sums, (std::vector<std::int64_t>{63, 63, 63}));
}

TEST(Join, JoiningAgainWithOtherFaultsIsRefused) {
  EXPECT_TRUE(ended_well(in_child({}, [] {
    const Flock flock = join();
    Faults faults;
    faults.drop = 0.5;
    try {
      join(faults);
    } catch (const InvalidArgument& error) {
      return std::string(error.what()).find("with other faults") != std::string::npos;
    }
    return false;
  })));
}

std::string error_of_join() {
  try {
    join();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JoinErrors, SayWhichVariableIsWrong) {
  EXPECT_TRUE(
      ended_well(in_child({{"STARLING_RANK", "one"}, {"STARLING_SIZE", "2"}, {"STARLING_JOB", "j"}}, [] {
        return error_of_join() == "STARLING_RANK=one is not a whole number from 0 to 2147483647";
      })));
  EXPECT_TRUE(ended_well(in_child({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, [] {
    return error_of_join() == "torchrun set RANK but not MASTER_PORT, which identifies the job";
  })));
  EXPECT_TRUE(ended_well(in_child({{"STARLING_SEND_LIMIT", "0"}}, [] {
    return error_of_join() == "STARLING_SEND_LIMIT=0 is not a number of bytes above 0";
  })));
  EXPECT_TRUE(ended_well(in_child({{"STARLING_TIMEOUT", "soon"}}, [] {
    return error_of_join() == "STARLING_TIMEOUT=soon is not a number of seconds above 0";
  })));
}

TEST(JoinErrors, AShortTokenIsRefused) {
  EXPECT_TRUE(ended_well(in_child(
      {{"STARLING_RANK", "0"},
       {"STARLING_SIZE", "2"},
       {"STARLING_JOB", "guess me"},
       {"STARLING_FABRIC", "c10d"},
       {"STARLING_STORE", "127.0.0.1:1"}},
      [] { return error_of_join().find("has 8 characters; it needs at least 16") != std::string::npos; })));
}

TEST(JoinErrors, SayWhatANewcomerNeeds) {
  EXPECT_TRUE(ended_well(in_child({{"STARLING_ENTER", "yes"}}, [] {
    return error_of_join() == "STARLING_ENTER=yes is neither 1 nor 0";
  })));
  EXPECT_TRUE(ended_well(in_child({{"STARLING_ENTER", "1"}}, [] {
    return error_of_join() == "STARLING_ENTER is set, but not STARLING_JOB, the word of the job to enter";
  })));
  EXPECT_TRUE(
      ended_well(in_child({{"STARLING_ENTER", "1"}, {"STARLING_JOB", "j"}, {"STARLING_FABRIC", "local"}}, [] {
        return error_of_join() ==
               "STARLING_ENTER: the fabric local does not admit newcomers; c10d and hybrid(c10d) do";
      })));
}

TEST(JoinErrors, TheTimeoutBoundsJoiningAndWaiting) {
  EXPECT_TRUE(ended_well(in_child({{"STARLING_TIMEOUT", "0.1"},
                                   {"STARLING_RANK", "0"},
                                   {"STARLING_SIZE", "2"},
                                   {"STARLING_JOB", fmt::format("join-test-{}-late", getpid())}},
                                  [] { return error_of_join().find("did not join") != std::string::npos; })));
}

}  // namespace
}  // namespace starling::flock

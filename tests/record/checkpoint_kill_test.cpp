// Covers checkpoint_writer of starling/record with processes that are killed.
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include "record/checkpoint_state.h"
#include "record/folder.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_phase.h"
#include "starling/record/checkpoint_writer.h"

// Kills runs one after another in one folder: a checkpoint that was complete once stays complete.

namespace starling::record {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::atomic<int> countdown{0};
CheckpointPhase deadly = CheckpointPhase::count;

void kill_at_phase(CheckpointPhase phase) {
  if (phase == deadly && --countdown == 0) raise(SIGKILL);
}

struct Killed {
  bool by_hook = false;
  std::int64_t known = -1;  // number of the last checkpoint that the run reported as complete
};

// Two ranks, as threads, write six checkpoints starting at `first`; the pipe reports the complete ones.
void write_checkpoints(const fs::path& folder, const std::string& token, std::size_t keep, Step first,
                       int pipe) {
  const CheckpointRunOptions options{folder, token, 2, keep, 10s, {}};
  CheckpointWriter zero(options, 0);
  CheckpointWriter one(options, 1);
  const std::vector<Rank> members = {0, 1};
  for (Step step = first; step < first + 6; ++step) {
    const SmallState state(static_cast<int>(step));
    one.save(step, {}, state.parts(), members);
    zero.save(step, {}, state.parts(), members);
    zero.finish();
    if (zero.last_saved() != step) _exit(3);
    const std::int64_t number = CheckpointFolder(folder).newest()->number;
    if (write(pipe, &number, sizeof(number)) != sizeof(number)) _exit(4);
  }
}

template <typename Kill>
Killed run_and_kill(const fs::path& folder, const std::string& token, std::size_t keep, Step first,
                    const Kill& kill_it) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) {
    checkpoint_hook = kill_at_phase;
    write_checkpoints(folder, token, keep, first, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  kill_it(child);
  Killed killed;
  for (std::int64_t number = 0; read(ends[0], &number, sizeof(number)) == sizeof(number);)
    killed.known = number;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  killed.by_hook = WIFSIGNALED(status);
  return killed;
}

class CheckpointKillTest : public testing::TestWithParam<std::size_t> {
 protected:
  // Starts one more run; returns whether it was killed.
  template <typename Kill>
  bool play(const Kill& kill_it) {
    const CheckpointFolder folder(folder_.path("ck"));
    const auto before = folder.newest();
    // Every third run starts one step earlier, so it replaces an existing step.
    const Step first = before ? before->step + (++runs_ % 3 == 0 ? 0 : 1) : 0;
    const Killed killed =
        run_and_kill(folder.path(), fmt::format("run-{}", runs_), GetParam(), first, kill_it);
    const std::int64_t known = std::max(before ? before->number : -1, killed.known);
    for (const CheckpointInfo& info : folder.list()) EXPECT_EQ(info.problem, "");
    const auto newest = folder.newest();
    if (known >= 0) {
      EXPECT_TRUE(newest.has_value());
      EXPECT_GE(newest->number, known);
      SmallState state(0);
      folder.open(folder.check(newest->step), 1).read_into(state.places());
      EXPECT_EQ(state, SmallState(static_cast<int>(newest->step)));
    }
    return killed.by_hook;
  }

  // A kill does not lose data that was written but not synced, so a memory file system tests the same; a disk
  // would take a minute.
  RecordFolder folder_{fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path()};
  int runs_ = 0;
};

TEST_P(CheckpointKillTest, InEveryPhase) {
  std::mt19937 random(7);
  for (int phase = 0; phase < static_cast<int>(CheckpointPhase::count); ++phase) {
    int killed = 0;
    for (int i = 0; i < 8; ++i) {
      deadly = static_cast<CheckpointPhase>(phase);
      countdown = 1 + static_cast<int>(random() % 5);
      killed += play([](pid_t) {});
      ASSERT_FALSE(HasFailure()) << "phase " << phase << ", run " << i;
    }
    EXPECT_GE(killed, 7) << "phase " << phase;
  }
  // A run that is not killed leaves only the checkpoints to keep.
  deadly = CheckpointPhase::count;
  EXPECT_FALSE(play([](pid_t) {}));
  std::size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path("ck"))) {
    EXPECT_TRUE(fs::exists(entry.path() / "manifest.json")) << entry.path();
    ++folders;
  }
  EXPECT_EQ(folders, GetParam());
}

TEST_P(CheckpointKillTest, AtAnyMoment) {
  std::mt19937 random(8);
  deadly = CheckpointPhase::count;
  for (int i = 0; i < 60; ++i) {
    play([&](pid_t child) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5'000));
      kill(child, SIGKILL);
    });
    ASSERT_FALSE(HasFailure()) << "run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Keeping, CheckpointKillTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace starling::record

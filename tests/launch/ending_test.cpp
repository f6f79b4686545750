#include <csignal>
#include <cstdlib>
#include <gmock/gmock.h>
#include <iostream>
#include <sys/wait.h>
#include <unistd.h>

#include "base/eventually.h"
#include "launch/launched.h"
#include "starling/base/os/processes.h"
#include "starling/flock/errors.h"
#include "starling/flock/flock.h"
#include "starling/launch/exited_ranks.h"
#include "starling/launch/launcher.h"

namespace starling::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> shell(int n, const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> words = {"-n", std::to_string(n)};
  words.insert(words.end(), options.begin(), options.end());
  for (const std::string& word : {std::string("--"), std::string("sh"), std::string("-c"), script})
    words.push_back(word);
  return words;
}

TEST(RunFailure, ReportsTheFirstFailureWithItsLastLines) {
  const Finished job({.words = shell(4, "[ $RANK = 2 ] || exec sleep 300; seq 1 14; echo oops; exit 3",
                                     {"--grace", "0.3"})});
  EXPECT_EQ(job.status, 3);
  EXPECT_THAT(job.err, HasSubstr("starling: rank 2 failed (exit status 3); the others have 0.3 s to end\n"
                                 "starling: stopping ranks 0, 1, 3\n"));
  EXPECT_THAT(job.err, HasSubstr("starling: rank 2 failed first, exit status 3; its last lines:\n    6\n"));
  EXPECT_THAT(job.err, AllOf(HasSubstr("    14\n"), HasSubstr("    oops\n"), Not(HasSubstr("    5\n"))));
}

TEST(RunFailure, ReportsTheNameAndStatusOfASignal) {
  const Finished job({.words = shell(3, "[ $RANK = 1 ] || exec sleep 300; ulimit -c 0; kill -SEGV $$",
                                     {"--on-failure", "stop"})});
  EXPECT_EQ(job.status, 128 + SIGSEGV);
  EXPECT_THAT(job.err, HasSubstr("rank 1 failed first, SIGSEGV; it printed nothing"));
}

// Each failure waits for the end of the previous one, so that the order is known on any machine.
TEST(RunFailure, ContinueKeepsTheOthersRunningAndReportsTheFailure) {
  const TestFolder folder;
  const std::string file = (folder.path / "pid").string();
  const std::string script = "case $RANK in 0) until [ -s " + file + " ]; do sleep 0.02; done; read p < " +
                             file +
                             "; while kill -0 $p 2>/dev/null; do sleep 0.02; done; echo went on; exit 9;; "
                             "1) echo $$ > " +
                             file + ".new; mv " + file + ".new " + file + "; exit 4;; esac";
  const Finished job({.words = shell(3, script, {"--on-failure", "continue"})});
  EXPECT_EQ(job.status, 4);
  EXPECT_EQ(job.out, "[0] went on\n");
  EXPECT_THAT(job.err, AllOf(HasSubstr("rank 1 failed first, exit status 4"),
                             HasSubstr("failed later: rank 0 (exit status 9)")));
}

TEST(RunFailure, KillsRanksThatIgnoreSigtermAfterTheGracePeriod) {
  const TestFolder folder;
  const std::string file = (folder.path / "deaf").string();
  launch::LaunchOptions options;
  options.ranks = 2;
  options.command = {"sh", "-c",
                     "[ $RANK = 0 ] || { trap '' TERM; touch " + file +
                         "; while :; do sleep 0.05; done; }; "
                         "until [ -e " +
                         file + " ]; do sleep 0.02; done; exit 5"};
  options.grace = 0.2;
  Launched job({.words = {}, .instead = [&] { return launch::launch(options); }});
  EXPECT_EQ(job.finish(), 5);
  EXPECT_THAT(job.err, HasSubstr("killing what did not end within 0.2 s: rank 1\n"));
}

// Rank 3 kills itself; the others continue to average.
TEST(RunFailure, DoesNotStopAFlockThatContinues) {
  const Finished job({.words = {"-n", "4", STARLING_SURVIVE_PATH}});
  EXPECT_EQ(job.status, 0);
  EXPECT_THAT(job.out, HasSubstr("[0] 3 of 4 ranks are left"));
  EXPECT_EQ(job.err,
            "starling: rank 3 was killed (SIGKILL); continuing with 3 ranks\n"
            "starling: 3 of 4 ranks finished, without rank 3 (SIGKILL)\n");
}

// Survivors may handle the failure like an exception: it takes time, and then they exit by themselves.
TEST(RunFailure, SurvivorsMayEndByThemselves) {
  const Finished job({.words = shell(3, "[ $RANK != 1 ] || exit 3; sleep 0.5; echo handled; exit 7")});
  EXPECT_EQ(job.status, 3);
  EXPECT_EQ(count(job.out, "handled"), 2) << job.out << job.err;
  EXPECT_THAT(job.err,
              AllOf(HasSubstr("starling: rank 1 failed (exit status 3); the others have 5 s to end\n"),
                    HasSubstr("rank 1 failed first, exit status 3"), HasSubstr("failed later: rank "),
                    Not(HasSubstr("stopping"))));
}

TEST(RunFailure, StopGivesNoTime) {
  const Finished job(
      {.words = shell(2, "[ $RANK != 1 ] || exit 3; sleep 3; echo handled", {"--on-failure", "stop"})});
  EXPECT_EQ(job.status, 3);
  EXPECT_EQ(job.out, "");
  EXPECT_THAT(job.err, HasSubstr("rank 1 failed (exit status 3); stopping the others\n"));
}

TEST(RunFailure, TheStopOptionOverridesTheFlock) {
  const Finished job({.words = {"-n", "4", "--on-failure", "stop", STARLING_SURVIVE_PATH}});
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_THAT(job.err, HasSubstr("starling: rank 3 was killed (SIGKILL)"));
  EXPECT_THAT(job.err, Not(HasSubstr("continuing")));
}

TEST(RunRestart, RestartsAFailedJob) {
  const TestFolder folder;
  const std::string logs = (folder.path / "logs").string();
  const Finished job(
      {.words = shell(1, "echo run ${STARLING_RESTART:-0}; [ \"$STARLING_RESTART\" = 2 ] || exit 3",
                      {"--restart-all", "5", "--log-dir", logs})});
  EXPECT_EQ(job.status, 0);
  EXPECT_EQ(count(job.err, "restarting all ranks"), 2);
  EXPECT_THAT(job.err, HasSubstr("starling: the job failed; restarting all ranks (restart 2 of 5)\n"));
  EXPECT_EQ(count(job.out, "run 2"), 1);
  EXPECT_THAT(contents(folder.path / "logs" / "rank-0.log"), testing::EndsWith("run 2\n"));
  EXPECT_THAT(contents(folder.path / "logs" / "rank-0.log"), HasSubstr("run 0\n"));
}

TEST(RunRestart, EndsWithTheLastFailure) {
  const Finished job({.words = shell(2, "[ $RANK = 1 ] || exec sleep 300; exit 3",
                                     {"--restart-all", "1", "--on-failure", "stop"})});
  EXPECT_EQ(job.status, 3);
  EXPECT_EQ(count(job.err, "restarting all ranks"), 1);
}

TEST(RunRestart, DoesNotRestartAJobThatTheUserEnded) {
  Launched job({.words = shell(2, "echo up; exec sleep 300", {"--restart-all", "3"})});
  job.wait_for("up", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_EQ(job.err, "starling: stopped by SIGTERM\n");
}

constexpr const char* kDeathVariable = "ENDING_TEST_DEATH";

// The program of the ranks below: rank 1 kills itself before or after joining, before any rank has told the
// launcher that the flock continues.
TEST(EarlyDeath, DISABLED_ARank) {
  const std::string death = std::getenv(kDeathVariable) == nullptr ? "" : std::getenv(kDeathVariable);
  const bool dies = std::getenv("RANK") == std::string("1");
  if (dies && death == "before join") raise(SIGKILL);
  Flock flock = join();
  if (dies) raise(SIGKILL);
  const launch::ExitedRanks exits;
  ASSERT_TRUE(eventually([&] { return exits.has(1); })) << "the launcher has not seen the death";
  if (death == "raise") {
    EXPECT_THROW(flock.allreduce(std::vector<double>{1}), PeerLost);
    std::cout << "handled" << std::endl;
    _exit(7);
  }
  flock.on_peer_failure(OnPeerFailure::reweight);
  std::cout << "left: " << flock.allgather(std::vector<double>{1}).size() << std::endl;
}

class EarlyDeaths : public testing::TestWithParam<std::string> {
 protected:
  static Finished run(const std::string& death) {
    std::vector<std::string> words = {"-n", "3"};
    if (GetParam() != "local") words.insert(words.end(), {"--fabric", GetParam()});
    words.insert(words.end(),
                 {"--", std::filesystem::read_symlink("/proc/self/exe").string(),
                  "--gtest_also_run_disabled_tests", "--gtest_filter=EarlyDeath.DISABLED_ARank"});
    return Finished({.words = words, .variables = {std::string(kDeathVariable) + "=" + death}});
  }
  void SetUp() override {
    if (GetParam() != "local" && !STARLING_HAS_NETWORK) GTEST_SKIP() << "no network fabric is built in";
  }
};

TEST_P(EarlyDeaths, AreSurvivedByAFlockThatContinues) {
  for (const std::string death : {"before join", "after join"}) {
    const Finished job = run(death);
    EXPECT_EQ(job.status, 0) << death << ": " << job.out << job.err;
    EXPECT_EQ(count(job.out, "left: 2"), 2) << death << ": " << job.out;
    EXPECT_THAT(job.err, testing::MatchesRegex(
                             "starling: rank 1 was killed .SIGKILL.; the others have [0-9]+ s to end\n"
                             "(.0. starling: 2 of 3 ranks join; rank 1 exited before\n)?"
                             "starling: continuing with 2 ranks\n"
                             "starling: 2 of 3 ranks finished, without rank 1 .SIGKILL.\n"))
        << death;
  }
}

TEST_P(EarlyDeaths, AreHandledBySurvivorsThatCannotContinue) {
  const Finished job = run("raise");
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_EQ(count(job.out, "handled"), 2) << job.out << job.err;
  EXPECT_THAT(job.err, AllOf(HasSubstr("failed later: rank "), Not(HasSubstr("stopping"))));
}

INSTANTIATE_TEST_SUITE_P(All, EarlyDeaths, testing::Values("local", "c10d", "hybrid"),
                         [](const auto& test) { return test.param; });

// The flock has announced that it continues, but the only remaining rank cannot.
TEST(RunFailure, ASuspendedRankDoesNotContinue) {
  const TestFolder folder;
  const std::string file = (folder.path / "pid").string();
  launch::LaunchOptions options;
  options.ranks = 2;
  options.command = {"sh", "-c",
                     "[ $RANK = 0 ] || { echo $$ > " + file + ".new; mv " + file + ".new " + file +
                         "; kill -STOP $$; exit 0; }; until [ -s " + file +
                         " ]; do sleep 0.02; done; until grep -q 'T (stopped)' /proc/$(cat " + file +
                         ")/status; do sleep 0.02; done; exit 5"};
  options.continues = true;
  options.grace = 0.3;
  Launched job({.words = {}, .instead = [&] { return launch::launch(options); }});
  EXPECT_EQ(job.finish(), 5);
  EXPECT_THAT(job.err, AllOf(HasSubstr("starling: rank 0 failed (exit status 5); the others have 0.3 s to "
                                       "end; rank 1 is suspended by SIGSTOP\n"
                                       "starling: stopping rank 1 (suspended by SIGSTOP)\n"),
                             HasSubstr("rank 0 failed first"), Not(HasSubstr("killing"))));
}

TEST(RunFailure, SuccessReturnsZeroAndPrintsNothing) {
  const TestFolder folder;
  const Finished job({.words = shell(16, "touch " + folder.path.string() + "/$RANK")});
  EXPECT_EQ(job.status, 0);
  EXPECT_EQ(job.out + job.err, "");
  for (int rank = 0; rank < 16; ++rank)
    EXPECT_TRUE(std::filesystem::exists(folder.path / std::to_string(rank)));
}

TEST(RunTimeout, StopsTheJobAndReportsIt) {
  const Finished job({.words = shell(3, "[ $RANK != 1 ] || exit 0; exec sleep 300", {"--timeout", "0.5"})});
  EXPECT_EQ(job.status, 124);
  EXPECT_THAT(job.err, testing::StartsWith("starling: stopped after 0.5 s (--timeout); still running: rank"));
}

class RunSignals : public testing::TestWithParam<int> {};

TEST_P(RunSignals, AreForwarded) {
  Launched job(
      {.words = shell(
           3, "trap 'echo caught; exit 0' INT TERM HUP USR1 USR2; echo up; while :; do sleep 0.02; done")});
  job.wait_for("up", 3);
  job.signal(GetParam());
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] caught", "[0] up", "[1] caught", "[1] up", "[2] caught", "[2] up"));
}

INSTANTIATE_TEST_SUITE_P(All, RunSignals, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2),
                         [](const auto& test) { return std::string(sigabbrev_np(test.param)); });

TEST(RunSignal, EndsProgramsThatDoNotCatchIt) {
  Launched job({.words = shell(3, "echo up; exec sleep 300")});
  job.wait_for("up", 3);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_EQ(job.err, "starling: stopped by SIGTERM\n");
}

TEST(RunSignal, EndsSuspendedRanks) {
  Launched job({.words = shell(2, "echo up; [ $RANK = 0 ] || kill -STOP $$; exec sleep 300")});
  job.wait_for("up", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_EQ(job.err, "starling: stopped by SIGTERM\n");
}

TEST(RunSignal, KillsRanksThatIgnoreSigtermAfterTheGracePeriod) {
  Launched job(
      {.words = shell(2, "trap '' TERM; echo up; while :; do sleep 0.02; done", {"--grace", "0.3"})});
  job.wait_for("up", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_EQ(job.err,
            "starling: killing what did not end within 0.3 s: ranks 0, 1\nstarling: stopped by SIGTERM\n");
}

TEST(RunSignal, ASecondInterruptKills) {
  Launched job({.words = shell(2, "trap 'echo no' INT TERM; echo up; while :; do sleep 0.02; done")});
  job.wait_for("up", 2);
  job.signal(SIGINT);
  job.wait_for("no", 2);
  job.signal(SIGINT);
  EXPECT_EQ(job.finish(), 128 + SIGINT);
  EXPECT_THAT(job.err, HasSubstr("killed by a second SIGINT"));
}

TEST(RunSignal, CtrlCAtATerminalArrivesOnce) {
  Launched job(
      {.words = shell(2, "trap 'echo caught' INT; trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"),
       .variables = {"NO_COLOR=1"},
       .terminal = true});
  job.wait_for("up", 2);
  job.type("\003");
  job.wait_for("caught", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(count(job.out, "caught"), 2) << job.out;
}

TEST(RunSignal, CtrlZStopsTheRanksToo) {
  Launched job({.words = shell(2, "echo pid=$$; exec sleep 300"), .input = ""});
  job.wait_for("pid=", 2);
  const auto rank = static_cast<pid_t>(std::stol(value_of(job.out, "pid")));
  const auto state = [&](char wanted) {
    return eventually([&] {
      return contents("/proc/" + std::to_string(rank) + "/stat").find(std::string(") ") + wanted) !=
             std::string::npos;
    });
  };
  job.signal(SIGTSTP);
  EXPECT_TRUE(state('T'));
  int status = 0;
  EXPECT_EQ(waitpid(job.pid(), &status, WUNTRACED), job.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  job.signal(SIGCONT);
  EXPECT_TRUE(state('S'));
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
}

// For each rank: a background child, one in its own session, and a daemon that forked twice.
constexpr const char* kBrood = "sleep 301 & setsid sleep 302 & (setsid sh -c 'sleep 303; :' &) ; ";

TEST(RunDescendants, EndWithTheRanks) {
  const TestFolder folder;
  const std::string file = (folder.path / "pid").string();
  // One clears its environment, so only its ancestry identifies it.
  const Finished job({.words = shell(2, std::string(kBrood) +
                                            "echo job=$STARLING_JOB; [ $RANK = 0 ] || exit 0; "
                                            "setsid env -i sleep 304 & echo $! > " +
                                            file)});
  EXPECT_EQ(job.status, 0);
  EXPECT_TRUE(nothing_left_of(value_of(job.out, "job")));
  EXPECT_TRUE(soon_gone(static_cast<pid_t>(std::stol(contents(file)))));
}

TEST(RunDescendants, EndAfterAFailure) {
  const Finished job(
      {.words = shell(2, std::string(kBrood) + "echo job=$STARLING_JOB; [ $RANK = 0 ] || exit 6; wait",
                      {"--grace", "0.3"})});
  EXPECT_EQ(job.status, 6);
  EXPECT_TRUE(nothing_left_of(value_of(job.out, "job")));
}

TEST(RunDescendants, EndWhenTheLauncherIsKilled) {
  Launched job({.words = shell(2, std::string(kBrood) + "echo job=$STARLING_JOB; wait")});
  job.wait_for("job=", 2);
  const std::string token = value_of(job.out, "job");
  ASSERT_TRUE(eventually([&] { return processes_with("STARLING_JOB=" + token).size() >= 10; }));
  job.signal(SIGKILL);
  EXPECT_EQ(job.finish(), -SIGKILL);
  EXPECT_TRUE(nothing_left_of(token));
}

TEST(RunDescendants, RanksDieWithTheLauncherEvenWithoutTheGuard) {
  Launched job({.words = shell(2, "echo pid=$$; exec sleep 300")});
  job.wait_for("pid=", 2);
  const auto rank = static_cast<pid_t>(std::stol(value_of(job.out, "pid")));
  for (const pid_t child : descendants(job.pid()))
    if (describe_process(child).ends_with("(flock-guard)")) kill(child, SIGKILL);
  job.signal(SIGKILL);
  job.finish();
  EXPECT_TRUE(soon_gone(rank));
}

// bash makes `>(tee log)` a child of the command, which must still write the output of the job.
TEST(RunDescendants, EarlierChildrenOfTheLauncherAreNotKilled) {
  const pid_t test = getpid();
  launch::LaunchOptions options;
  options.command = {"true"};
  Launched job({.words = {}, .instead = [&] {
                  const pid_t earlier = fork();
                  if (earlier == 0) {
                    while (true) pause();
                  }
                  const int status = launch::launch(options);
                  const bool alive = kill(earlier, 0) == 0 && waitpid(earlier, nullptr, WNOHANG) == 0;
                  kill(earlier, SIGKILL);
                  return getpid() != test && status == 0 && alive ? 0 : 1;
                }});
  EXPECT_EQ(job.finish(), 0);
}

}  // namespace
}  // namespace starling::launch

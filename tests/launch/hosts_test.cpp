#include <csignal>
#include <fstream>
#include <gmock/gmock.h>

#include "base/eventually.h"
#include "launch/launched.h"
#include "starling/base/os/processes.h"

// Simulated hosts: the program that starts their launchers gives each another environment, as ssh would, and
// a name.

namespace starling::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class RunHosts : public testing::Test {
 protected:
  std::string script(const std::string& name, const std::string& text) const {
    const auto path = folder_.path / name;
    std::ofstream(path) << "#!/bin/sh\n" << text << '\n';
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  std::string way() const {
    return script("way", "exec env -i PATH=\"$PATH\" STARLING_HOST=\"$1\" sh -c \"$2\"");
  }
  std::vector<std::string> words(const std::string& program, std::vector<std::string> options = {},
                                 const std::string& hosts = "a:2") const {
    std::vector<std::string> all = {"--hosts", hosts, "--address", "127.0.0.1"};
    if (std::ranges::find(options, "--launcher") == options.end()) {
      all.push_back("--launcher");
      all.push_back(way());
    }
    all.insert(all.end(), options.begin(), options.end());
    for (const std::string& word : {std::string("sh"), std::string("-c"), program}) all.push_back(word);
    return all;
  }

  TestFolder folder_;
};

// The ranks of one host share memory; several hosts need an engine.
class RunTwoHosts : public RunHosts {
 protected:
  void SetUp() override {
    if (!STARLING_HAS_NETWORK) GTEST_SKIP() << "no fabric between hosts is built in";
  }
  std::vector<std::string> words(const std::string& program, std::vector<std::string> options = {},
                                 const std::string& hosts = "a:2,b:2") const {
    return RunHosts::words(program, std::move(options), hosts);
  }
};

TEST_F(RunTwoHosts, ReportsTooFewOpenFilesAtOnce) {
  const Finished job({.words = {"-n", "3", "--fabric", "c10d", "--", "sh", "-c",
                                "ulimit -n 12; exec " STARLING_EXAMPLE_PATH}});
  EXPECT_NE(job.status, 0);
  EXPECT_THAT(
      job.err,
      HasSubstr("the limit on open files (RLIMIT_NOFILE, ulimit -n) is 12, and 3 ranks over c10d need "));
}

TEST_F(RunTwoHosts, NumbersRanksAcrossHostsWithOneStore) {
  const Finished job({.words = words("echo $STARLING_HOST $STARLING_RANK/$STARLING_SIZE $RANK/$WORLD_SIZE "
                                     "$LOCAL_RANK/$LOCAL_WORLD_SIZE $STARLING_FABRIC $STARLING_INTERFACE "
                                     "$MASTER_ADDR $A $STARLING_LOG $ELSE; "
                                     "echo $STARLING_JOB ${STARLING_STORE%:*} $MASTER_PORT $PWD >&2; cat",
                                     {"--env", "A=x y"}, "a:1,user@b:2"),
                      .input = "for nobody\n",
                      .variables = {"STARLING_LOG=info", "ELSE=stays", "STARLING_HOST=here"}});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] a 0/3 0/3 0/1 hybrid lo a x y info",
                                                 "[1] user@b 1/3 1/3 0/2 hybrid lo a x y info",
                                                 "[2] user@b 2/3 2/3 1/2 hybrid lo a x y info"));
  const auto lines = sorted_lines(job.err);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::ContainsRegex("^\\[0\\] [0-9a-f]{32} 127\\.0\\.0\\.1 [0-9]+ " +
                                               std::filesystem::current_path().string() + "$"));
  for (const std::string& line : lines) EXPECT_EQ(line.substr(4), lines[0].substr(4));
}

TEST_F(RunTwoHosts, AFlockAveragesAcrossHosts) {
  std::vector<std::string> all = words("");
  all.resize(all.size() - 3);
  all.emplace_back(STARLING_EXAMPLE_PATH);
  const Finished job({.words = all, .variables = {"STARLING_LOG=info"}});
  EXPECT_EQ(job.status, 0) << job.err;
  std::vector<std::string> expected;
  for (const char* rank : {"0", "1", "2", "3"})
    expected.push_back(std::string("[") + rank + "] rank " + rank + " of 4: the average rank is 1.5");
  EXPECT_THAT(sorted_lines(job.out), testing::ElementsAreArray(expected));
  EXPECT_EQ(count(job.err, "joins over hybrid(c10d)"), 4) << job.err;
}

TEST_F(RunHosts, KeepsLinesWholeAndWritesLogsLocally) {
  const std::string logs = (folder_.path / "logs").string();
  const Finished job(
      {.words = words("head -c 70000 /dev/zero | tr '\\0' x; echo; printf rest >&2", {"--log-dir", logs})});
  EXPECT_EQ(job.status, 0);
  const std::string line(70000, 'x');
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(count(job.out, std::string("[") + rank + "] x"), 2);  // a long line is split into several
    std::string log = contents(std::filesystem::path(logs) / (std::string("rank-") + rank + ".log"));
    const std::size_t at = log.find("rest");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(log.erase(at, 4), line + "\n");
  }
  EXPECT_THAT(sorted_lines(job.err), ElementsAre("[0] rest", "[1] rest"));
}

TEST_F(RunTwoHosts, AFailureStopsAllHostsAndSetsTheStatus) {
  const Finished job(
      {.words = words("[ $RANK = 2 ] || exec sleep 300; echo oops; exit 3", {"--grace", "0.3"})});
  EXPECT_EQ(job.status, 3);
  EXPECT_EQ(job.err,
            "starling: rank 2 on b failed (exit status 3); the others have 0.3 s to end\n"
            "starling: stopping ranks 0, 1, 3\n"
            "starling: rank 2 on b failed first, exit status 3; its last lines:\n    oops\n");
}

TEST_F(RunTwoHosts, ContinueKeepsTheOthersRunning) {
  const Finished job(
      {.words = words("case $RANK in 3) kill -KILL $$;; 1) sleep 0.3; exit 4;; esac; echo well",
                      {"--on-failure", "continue"})});
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] well", "[2] well"));
  EXPECT_THAT(job.err, AllOf(HasSubstr("rank 3 on b was killed (SIGKILL); continuing with "),
                             HasSubstr("failed later: rank 1 on a (exit status 4)")));
}

TEST_F(RunTwoHosts, DoesNotStopAFlockThatContinues) {
  std::vector<std::string> all = words("");
  all.resize(all.size() - 3);
  all.emplace_back(STARLING_SURVIVE_PATH);
  const Finished job({.words = all});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("[0] 3 of 4 ranks are left"));
  EXPECT_THAT(job.err, HasSubstr("starling: rank 3 on b was killed (SIGKILL); continuing with 3 ranks\n"));
}

TEST_F(RunTwoHosts, RestartsAFailedJob) {
  const Finished job({.words = words("echo run ${STARLING_RESTART:-0} in $STARLING_JOB; "
                                     "[ -n \"$STARLING_RESTART\" ] || exit 3",
                                     {"--restart-all", "1"})});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count(job.err, "restarting all ranks (restart 1 of 1)"), 1);
  EXPECT_EQ(count(job.out, "run 1"), 4) << job.out;
}

TEST_F(RunHosts, KillsRanksThatIgnoreSigtermAfterTheGracePeriod) {
  Launched job({.words = words("trap '' TERM; echo job=$STARLING_JOB; while :; do sleep 0.02; done",
                               {"--grace", "0.3"})});
  job.wait_for("job=", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_THAT(job.err, HasSubstr("killing what did not end within 0.3 s: ranks 0, 1\n"));
  EXPECT_TRUE(nothing_left_of(value_of(job.out, "job")));
}

TEST_F(RunHosts, TheTimeoutEndsAllHosts) {
  const Finished job({.words = words("exec sleep 300", {"--timeout", "0.5"})});
  EXPECT_EQ(job.status, 124);
  EXPECT_THAT(job.err, HasSubstr("stopped after 0.5 s (--timeout); still running: ranks 0, 1\n"));
}

TEST_F(RunTwoHosts, ForwardsSignals) {
  Launched job(
      {.words = words(
           "trap 'echo one' USR1; trap 'echo two; exit 0' INT; echo up; while :; do sleep 0.02; done")});
  job.wait_for("up", 4);
  job.signal(SIGUSR1);
  job.wait_for("one", 4);
  job.signal(SIGINT);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(count(job.out, "two"), 4) << job.out;
}

TEST_F(RunHosts, NoCommandLineContainsTheToken) {
  Launched job({.words = words("echo job=$STARLING_JOB; exec sleep 300", {"--env", "SECRET=hush"})});
  job.wait_for("job=", 2);
  const std::string token = value_of(job.out, "job");
  ASSERT_EQ(token.size(), 32u);
  int seen = 0;
  for (const pid_t pid : descendants(job.pid())) {
    const std::string line = contents("/proc/" + std::to_string(pid) + "/cmdline");
    if (line.find("--hosts") != std::string::npos) continue;  // the command line of the user
    EXPECT_THAT(line, AllOf(Not(HasSubstr(token)), Not(HasSubstr("hush"))));
    seen += count(line, "run-part");
  }
  EXPECT_GE(seen, 1);
  job.signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  EXPECT_EQ(job.err, "starling: stopped by SIGTERM\n");
  EXPECT_TRUE(nothing_left_of(token));
}

// Like ssh: the local process dies, and the remote one only sees the end of its input.
TEST_F(RunHosts, NoProcessSurvivesAKilledLauncher) {
  const std::string far =
      script("far", "cat | setsid env -i PATH=\"$PATH\" STARLING_HOST=\"$1\" sh -c \"$2\"");
  Launched job({.words = words("sleep 301 & echo job=$STARLING_JOB; wait", {"--launcher", far})});
  job.wait_for("job=", 2);
  const std::string token = value_of(job.out, "job");
  ASSERT_TRUE(eventually([&] { return processes_with("STARLING_JOB=" + token).size() >= 4; }));
  job.signal(SIGKILL);
  EXPECT_EQ(job.finish(), -SIGKILL);
  EXPECT_TRUE(nothing_left_of(token));
}

TEST_F(RunTwoHosts, NamesALostHost) {
  Launched job({.words = words("echo pid$RANK=$PPID; exec sleep 300", {"--on-failure", "stop"})});
  job.wait_for("pid", 4);
  kill(static_cast<pid_t>(std::stol(value_of(job.out, "pid2"))), SIGKILL);
  EXPECT_EQ(job.finish(), 128 + SIGKILL);
  EXPECT_EQ(job.err,
            "starling: host b was lost with ranks 2, 3 (way: SIGKILL); stopping the others\n"
            "starling: host b failed first, SIGKILL; it printed nothing\n");
}

// Although the guard and the ranks of the other host run on the same machine in this test.
TEST_F(RunTwoHosts, ContinuesWithoutALostHost) {
  Launched job({.words = words("echo pid$RANK=$PPID; [ $RANK -ge 2 ] && exec sleep 300; sleep 0.5; echo well",
                               {"--on-failure", "continue"})});
  job.wait_for("pid", 4);
  kill(static_cast<pid_t>(std::stol(value_of(job.out, "pid2"))), SIGKILL);
  EXPECT_EQ(job.finish(), 128 + SIGKILL);
  EXPECT_EQ(count(job.out, "[0] well") + count(job.out, "[1] well"), 2) << job.out << job.err;
  EXPECT_THAT(job.err,
              HasSubstr("host b was lost with ranks 2, 3 (way: SIGKILL); continuing with 2 ranks\n"));
}

TEST_F(RunTwoHosts, NamesAnUnreachableHost) {
  const std::string no_way =
      script("no-way",
             "[ $1 = b ] && { echo no route to $1 >&2; exit 255; }; exec env -i PATH=\"$PATH\" sh -c \"$2\"");
  const Finished job({.words = words("exec sleep 300", {"--launcher", no_way})});
  EXPECT_EQ(job.status, 255);
  EXPECT_THAT(job.err, AllOf(HasSubstr("[b] no route to b\n"),
                             HasSubstr("starling: host b did not start its ranks (no-way: exit status 255); "
                                       "stopping the others\n"),
                             HasSubstr("starling: host b failed first, exit status 255; its last lines:\n"
                                       "    no route to b\n")));
}

TEST_F(RunHosts, AHostReportsMissingPrograms) {
  std::vector<std::string> all = words("");
  all.resize(all.size() - 3);
  all.emplace_back("no-such-program");
  const Finished job({.words = all});
  EXPECT_EQ(job.status, 2);
  EXPECT_THAT(job.err, HasSubstr("] starling: program 'no-such-program' is not in PATH\n"));
  EXPECT_THAT(job.err, HasSubstr("starling: host a did not start its ranks (way: exit status 2)\n"));
  const Finished tool({.words = words("true", {"--remote-tool", "/no/such/starling"})});
  EXPECT_EQ(tool.status, 127);
  EXPECT_THAT(tool.err, AllOf(HasSubstr("[a] "), HasSubstr("/no/such/starling")));
}

// Output of a login shell must not be taken for a record.
TEST_F(RunHosts, LabelsTheConnectionsOutputWithTheHost) {
  const std::string polite =
      script("polite", "echo welcome; printf 'to '; exec env -i PATH=\"$PATH\" sh -c \"$2\"");
  const Finished job({.words = words("echo hi", {"--launcher", "'" + polite + "'"})});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] hi", "[1] hi", "[a] to ", "[a] welcome"));
}

TEST_F(RunHosts, ReportsBadUsageInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--hosts", "a:0", "true"},
       "'a:0' has '0' after its colon; valid is a number of ranks from 1 to 10000"},
      {{"--hosts", "a:2,b:x", "true"}, "'b:x' has 'x' after its colon"},
      {{"--hosts", "a:2,,b", "true"}, "'a:2,,b' has a host without a name; valid is, for instance, a:2,b:2"},
      {{"--hosts", ":2", "true"}, "without a name"},
      {{"--hosts", "", "-n", "2", "true"}, "'' has a host without a name"},
      {{"--hosts", "a,a", "true"}, "'a' appears twice"},
      {{"--hosts", "-oProxy,b", "true"}, "'-oProxy' is not a valid host name"},
      {{"--hosts", "fe80::1", "true"}, "as in [fe80::1]:2"},
      {{"--hosts", "a:9000,b:9000", "true"}, "18000 ranks in total; the maximum is 10000"},
      {{"--hosts", "a:2", "-n", "3", "true"}, "-n 3 but --hosts has 2 ranks in all"},
      {{"--hosts", "a,b", "--fabric", "local", "true"}, "--fabric local does not reach several hosts"},
      {{"--hosts", "a,b", "--launcher", "no-such-ssh -p 1", "true"},
       "--launcher: program 'no-such-ssh' is not in PATH"},
      {{"--hosts", "a,b", "--launcher", "sh 'x", "true"}, "has an unterminated quote '"},
      {{"--hosts", "a,b", "--launcher", "true", "--interface", "nix0", "true"},
       "this machine has no interface 'nix0'"},
      {{"--hosts", "no.such.host.invalid,b.invalid", "--launcher", "true", "true"},
       "pass --address or --interface"},
      {{"--hosts", "a,b", "--launcher", "true", "--env", "FOO", "true"}, "--env needs NAME=VALUE, not 'FOO'"},
      {{"--launcher", "true", "-n", "2", "true"}, "--launcher requires --hosts"},
  };
  for (const auto& [words, message] : bad) {
    SCOPED_TRACE(message);
    const Finished job({.words = words, .variables = {"STARLING_FABRIC="}});
    EXPECT_EQ(job.status, 2);
    EXPECT_THAT(job.err, AllOf(testing::StartsWith("starling: "), HasSubstr(message)));
    EXPECT_EQ(count(job.err, "\n"), 1) << job.err;
  }
}

}  // namespace
}  // namespace starling::launch

#include <algorithm>
#include <gmock/gmock.h>

#include "launch/launched.h"
#include "starling/launch/cpus.h"

namespace starling::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(RunEnvironment, HasStarlingsAndTorchrunsVariables) {
  const Finished job(
      {.words = {"-n", "3", "--", "sh", "-c",
                 "echo $STARLING_RANK $STARLING_SIZE $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE"}});
  EXPECT_EQ(job.status, 0);
  EXPECT_EQ(job.err, "");
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] 0 3 0 3 0 3", "[1] 1 3 1 3 1 3", "[2] 2 3 2 3 2 3"));
}

TEST(RunEnvironment, AllRanksOfAJobShareTokenAndAddress) {
  const std::vector<std::string> words = {"-n", "2",  "--",
                                          "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT $STARLING_JOB"};
  std::string tokens[2];
  for (std::string& token : tokens) {
    const Finished job({.words = words, .variables = {"MASTER_PORT=1", "STARLING_JOB=other"}});
    const auto lines = sorted_lines(job.out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].substr(4), lines[1].substr(4));
    EXPECT_THAT(lines[0], testing::ContainsRegex("127\\.0\\.0\\.1:[0-9]{4,5} [0-9a-f]{32}$"));
    token = lines[0].substr(lines[0].rfind(' ') + 1);
  }
  EXPECT_NE(tokens[0], tokens[1]);
}

TEST(RunEnvironment, EnvAddsAndReplaces) {
  const Finished job(
      {.words = {"-n", "1", "--env", "A=x y", "--env", "B=c=d", "--env", "MASTER_PORT=29", "--env",
                 "E=", "--", "sh", "-c", "echo \"$A,$B,$MASTER_PORT,${E-unset},$INHERITED\""},
       .variables = {"A=old", "INHERITED=yes"}});
  EXPECT_EQ(job.out, "[0] x y,c=d,29,,yes\n");
}

TEST(RunEnvironment, ThreadsAreSharedFairlyUnlessTheUserDecided) {
  const std::size_t cores = launch::allowed_cpus().size();
  const auto threads = [](std::vector<std::string> words, std::vector<std::string> variables) {
    for (const char* word : {"--", "sh", "-c", "[ $RANK != 0 ] || echo $OMP_NUM_THREADS"})
      words.emplace_back(word);
    return Finished({.words = std::move(words), .variables = std::move(variables)}).out;
  };
  EXPECT_EQ(threads({"-n", "1"}, {}), "[0] " + std::to_string(cores) + "\n");
  EXPECT_EQ(threads({"-n", "2"}, {}), "[0] " + std::to_string(std::max<std::size_t>(1, cores / 2)) + "\n");
  EXPECT_EQ(threads({"-n", "2"}, {"OMP_NUM_THREADS=7"}), "[0] 7\n");
  EXPECT_EQ(threads({"-n", "2", "--env", "OMP_NUM_THREADS=5"}, {"OMP_NUM_THREADS=7"}), "[0] 5\n");
}

TEST(RunEnvironment, BindPinsEachRankToItsCpus) {
  const auto cpus = launch::allowed_cpus();
  const Rank n = 3;
  const std::vector<std::string> program = {"--", "grep", "Cpus_allowed_list", "/proc/self/status"};
  std::vector<std::string> words = {"-n", "3", "--bind"};
  words.insert(words.end(), program.begin(), program.end());
  const auto lines = sorted_lines(Finished({.words = words}).out);
  ASSERT_EQ(lines.size(), 3u);
  for (Rank rank = 0; rank < n; ++rank) {
    const std::string list = lines[static_cast<std::size_t>(rank)].substr(lines[0].find('\t') + 1);
    const auto share = launch::share_of_cpus(cpus, rank, n);
    if (share.size() == 1) {
      EXPECT_EQ(list, std::to_string(share[0]));
    } else {
      EXPECT_THAT(list, testing::StartsWith(std::to_string(share[0])));
    }
  }
  words.erase(words.begin() + 2);
  const Finished free({.words = words});
  EXPECT_EQ(count(free.out, sorted_lines(free.out)[0].substr(4)), 3);  // all ranks may use the same CPUs
}

TEST(RunEnvironment, RankZeroReadsStandardInput) {
  const Finished job({.words = {"-n", "3", "--", "sh", "-c", "cat; echo end"}, .input = "to be read\n"});
  EXPECT_EQ(job.status, 0);
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] end", "[0] to be read", "[1] end", "[2] end"));
}

TEST(RunEnvironment, RankZeroReadsFromTheTerminal) {
  const Finished job({.words = {"-n", "2", "--", "sh", "-c",
                                "read line; echo got:$line; test -t 0 && echo tty || echo none"},
                      .input = "typed\n",
                      .variables = {"NO_COLOR=1"},
                      .terminal = true});
  EXPECT_THAT(job.out, AllOf(HasSubstr("[0] got:typed\r\n"), HasSubstr("[0] tty"), HasSubstr("[1] got:\r\n"),
                             HasSubstr("[1] none")));
}

TEST(RunEnvironment, ArgumentsArriveByteForByte) {
  const Finished job(
      {.words = {"-n", "1", "--", "printf", "<%s>", "[1,2]", "", "--", "--env", "-n", "a b", "{}"}});
  EXPECT_EQ(job.out, "[0] <[1,2]><><--><--env><-n><a b><{}>\n");
}

TEST(RunEnvironment, PythonScriptsWork) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
  const TestFolder folder;
  std::filesystem::path script = folder.path / "script.py";
  {
    FILE* file = std::fopen(script.c_str(), "w");
    std::fputs("#!/usr/bin/env python3\nimport os\nprint('rank', os.environ['RANK'])\n", file);
    std::fclose(file);
  }
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const Finished job({.words = {"-n", "2", "--", script.string()}});
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] rank 0", "[1] rank 1"));
}

}  // namespace
}  // namespace starling::launch

#include "starling/launch/output.h"

#include <csignal>
#include <fstream>
#include <gmock/gmock.h>

#include "launch/launched.h"

namespace starling::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(RunOutput, SeparatesTheStreamsAndCompletesPartialLines) {
  const Finished job(
      {.words = {"-n", "2", "--", "sh", "-c", "echo out; echo err >&2; printf partial; printf rest >&2"}});
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] out", "[0] partial", "[1] out", "[1] partial"));
  EXPECT_THAT(sorted_lines(job.err), ElementsAre("[0] err", "[0] rest", "[1] err", "[1] rest"));
  EXPECT_TRUE(job.out.ends_with('\n') && job.err.ends_with('\n'));
}

TEST(RunOutput, DoesNotMixLinesOfRanks) {
  const std::string line(300, 'x');
  const Finished job(
      {.words = {"-n", "4", "--", "sh", "-c",
                 "i=0; while [ $i -lt 500 ]; do printf '%s' " + line + "; echo $RANK; i=$((i+1)); done"}});
  ASSERT_EQ(job.status, 0);
  const auto lines = sorted_lines(job.out);
  ASSERT_EQ(lines.size(), 2000u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string rank = std::to_string(i / 500);
    ASSERT_EQ(lines[i], "[" + rank + "] " + line + rank);
  }
}

TEST(RunOutput, PassesBytesUnchanged) {
  const TestFolder folder;
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes.push_back(static_cast<char>(i));
  std::ofstream(folder.path / "bytes", std::ios::binary) << bytes;
  const Finished job({.words = {"-n", "1", "--", "cat", (folder.path / "bytes").string()}});
  std::string expected = "[0] ";
  for (const char c : bytes) expected += c == '\n' ? std::string("\n[0] ") : std::string(1, c);
  EXPECT_EQ(job.out, expected + "\n");
}

TEST(RunOutput, SplitsALongLineButLogsItExactly) {
  const TestFolder folder;
  const std::string log = (folder.path / "deep" / "logs").string();
  const Finished job({.words = {"-n", "2", "--log-dir", log, "--", "sh", "-c",
                                "head -c 200000 /dev/zero; echo; echo err >&2"}});
  EXPECT_EQ(job.status, 0);
  for (const std::string& line : sorted_lines(job.out))
    EXPECT_LE(line.size(), launch::LineSplitter::kLongest + 4);
  EXPECT_EQ(count(job.out, "[1] "), 4);
  for (const char* name : {"rank-0.log", "rank-1.log"}) {
    // The order between the two pipes is not guaranteed.
    std::string text = contents(std::filesystem::path(log) / name);
    const std::size_t at = text.find("err\n");
    ASSERT_NE(at, std::string::npos);
    text.erase(at, 4);
    EXPECT_EQ(text, std::string(200000, '\0') + "\n");
  }
}

TEST(RunOutput, TruncatesOldLogs) {
  const TestFolder folder;
  for (const std::string text : {"a longer text", "short"}) {
    const Finished job({.words = {"-n", "1", "--log-dir", folder.path.string(), "--", "echo", text}});
    EXPECT_EQ(contents(folder.path / "rank-0.log"), text + "\n");
  }
}

TEST(RunOutput, ColorsOnlyAtATerminal) {
  const std::vector<std::string> words = {"-n", "2", "--", "echo", "hi"};
  const Finished colored({.words = words, .terminal = true});
  EXPECT_THAT(colored.out, AllOf(HasSubstr("m[0]\033[0m hi"), HasSubstr("m[1]\033[0m hi")));
  const Finished plain({.words = words, .variables = {"NO_COLOR=1"}, .terminal = true});
  EXPECT_THAT(plain.out, AllOf(HasSubstr("[0] hi"), Not(HasSubstr("\033"))));
  EXPECT_THAT(Finished({.words = words}).out, Not(HasSubstr("\033")));
}

TEST(RunOutput, EndsWhenTheReaderIsGone) {
  Launched job({.words = {"-n", "2", "--", "yes"}});
  job.wait_for("[0] y");
  job.close_output();
  EXPECT_EQ(job.finish(), 128 + SIGPIPE);
}

TEST(RunOutput, ASlowReaderDoesNotDelayTheTimeout) {
  Launched job({.words = {"-n", "2", "--timeout", "0.3", "--", "sh", "-c",
                          "[ $RANK != 1 ] || echo job=$STARLING_JOB >&2; yes"}});
  // Nothing is read until all ranks are gone.
  job.wait_for("job=");
  EXPECT_TRUE(nothing_left_of(value_of(job.err, "job")));
  EXPECT_EQ(job.finish(), 124);
}

}  // namespace
}  // namespace starling::launch

#include <csignal>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/child.h"
#include "starling/launch/cpus.h"
#include "starling/launch/environment.h"
#include "starling/launch/output.h"
#include "starling/launch/processes.h"

namespace starling::launch {
namespace {

using testing::ElementsAre;

TEST(Cpus, EnoughCoresMeansContiguousSharesThatUseThemAll) {
  const std::vector<int> cpus = {0, 1, 2, 3, 8, 9, 10};
  EXPECT_THAT(share_of_cpus(cpus, 0, 3), ElementsAre(0, 1));
  EXPECT_THAT(share_of_cpus(cpus, 1, 3), ElementsAre(2, 3));
  EXPECT_THAT(share_of_cpus(cpus, 2, 3), ElementsAre(8, 9, 10));
  EXPECT_THAT(share_of_cpus(cpus, 0, 1), testing::ElementsAreArray(cpus));
}

TEST(Cpus, FewCoresAreDealtRoundRobin) {
  const std::vector<int> cpus = {2, 5};
  for (const auto& [rank, cpu] : {std::pair{0, 2}, {1, 5}, {2, 2}, {3, 5}, {4, 2}})
    EXPECT_THAT(share_of_cpus(cpus, rank, 5), ElementsAre(cpu));
}

TEST(Cpus, WeMayUseSome) {
  EXPECT_FALSE(allowed_cpus().empty());
}

struct Pieces {
  std::vector<std::pair<std::string, bool>> seen;
  void operator()(std::string_view text, bool ended) { seen.emplace_back(text, ended); }
};

TEST(LineSplitter, LinesComeWholeHoweverTheyArrive) {
  const std::string text("one\n\ntwo\r\nth\0ree\nrest", 21);
  for (std::size_t step = 1; step <= text.size(); ++step) {
    LineSplitter lines;
    Pieces pieces;
    for (std::size_t at = 0; at < text.size(); at += step)
      lines.feed(std::string_view(text).substr(at, step), pieces);
    EXPECT_EQ(pieces.seen.size(), 4u);
    lines.finish(pieces);
    lines.finish(pieces);
    EXPECT_THAT(pieces.seen,
                ElementsAre(std::pair("one", true), std::pair("", true), std::pair("two\r", true),
                            std::pair(std::string("th\0ree", 6), true), std::pair("rest", false)));
  }
}

TEST(LineSplitter, ALongLineComesInBoundedPieces) {
  const std::size_t longest = LineSplitter::kLongest;
  const std::string text = std::string(2 * longest + 5, 'x') + "\n" + std::string(longest, 'y') + "\n";
  for (const std::size_t step : {std::size_t{1000}, longest - 1, longest, text.size()}) {
    LineSplitter lines;
    Pieces pieces;
    for (std::size_t at = 0; at < text.size(); at += step)
      lines.feed(std::string_view(text).substr(at, step), pieces);
    lines.finish(pieces);
    std::string together;
    for (const auto& [piece, ended] : pieces.seen) {
      EXPECT_LE(piece.size(), longest);
      together += piece + (ended ? "\n" : "");
    }
    EXPECT_EQ(together, text);
  }
}

TEST(Ending, SaysHow) {
  const auto ending_of = [](auto act) {
    const pid_t pid = fork();
    if (pid == 0) {
      act();
      _exit(0);
    }
    Ending ending;
    waitpid(pid, &ending.status, 0);
    return ending;
  };
  EXPECT_FALSE(ending_of([] {}).failed());
  const Ending exited = ending_of([] { _exit(3); });
  EXPECT_TRUE(exited.failed());
  EXPECT_EQ(exited.exit_status(), 3);
  EXPECT_EQ(exited.text(), "exit status 3");
  const Ending killed = ending_of([] { raise(SIGKILL); });
  EXPECT_EQ(killed.exit_status(), 128 + SIGKILL);
  EXPECT_EQ(killed.text(), "SIGKILL");
}

TEST(Environment, SetReplacesAndGetFinds) {
  Environment environment;
  environment.set("STARLING_TEST_X", "1");
  environment.set("STARLING_TEST_X", "a=b");
  EXPECT_STREQ(environment.get("STARLING_TEST_X"), "a=b");
  EXPECT_EQ(environment.get("STARLING_TEST"), nullptr);
  EXPECT_EQ(std::ranges::count_if(environment.entries(),
                                  [](const auto& e) { return e.starts_with("STARLING_TEST"); }),
            1);
  EXPECT_THROW(add_user_variables(environment, {"WORLD_SIZE=3"}), InvalidArgument);
  EXPECT_NE(random_token(), random_token());
}

TEST(Processes, DescendantsAreFoundBelowTheirAncestor) {
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) pause();
    pause();
  }
  std::vector<pid_t> below;
  while (below.size() < 2) below = descendants(getpid());  // the test's time limit bounds this
  EXPECT_EQ(below.front(), child);
  EXPECT_THAT(descendants(child), ElementsAre(below[1]));
  for (const pid_t pid : below) kill(pid, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(FindProgram, SearchesAsAShellWould) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", nullptr), "/bin/sh");
  EXPECT_THROW(find_program("sh", "/nowhere"), InvalidArgument);
  EXPECT_THROW(find_program("", "/bin"), InvalidArgument);
}

}  // namespace
}  // namespace starling::launch

#include <csignal>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/address.h"
#include "starling/launch/child.h"
#include "starling/launch/cpus.h"
#include "starling/launch/environment.h"
#include "starling/launch/hosts.h"
#include "starling/launch/output.h"
#include "starling/launch/pipe.h"
#include "starling/launch/processes.h"
#include "starling/launch/wire.h"

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

TEST(Hosts, AreReadWithTheirNumbers) {
  const auto hosts = parse_hosts("a:2,me@b,[fe80::1]:3,[::1]");
  std::vector<std::string> seen;
  for (const HostShare& host : hosts) seen.push_back(host.name + "=" + std::to_string(host.ranks));
  EXPECT_THAT(seen, ElementsAre("a=2", "me@b=1", "fe80::1=3", "::1=1"));
  EXPECT_EQ(bare_name("me@b"), "b");
  EXPECT_EQ(bare_name("b"), "b");
  for (const char* bad : {"", "a,", "a:", "a:-1", "a:10001", "a:2x", "[::1]2", "a b"})
    EXPECT_THROW(parse_hosts(bad), InvalidArgument) << bad;
}

TEST(SplitWords, AsAShellWould) {
  EXPECT_THAT(split_words("  ssh -p\t22 "), ElementsAre("ssh", "-p", "22"));
  EXPECT_THAT(split_words("a'b \"c'd \"e 'f\" '' \\ g\\'"), ElementsAre("ab \"cd", "e 'f", "", " g'"));
  EXPECT_THAT(split_words("\"a\\\"b\\c\\\\\" 'a\\'"), ElementsAre("a\"b\\c\\", "a\\"));
  EXPECT_TRUE(split_words(" ").empty());
  for (const char* bad : {"'a", "\"a'", "a\\"}) EXPECT_THROW(split_words(bad), InvalidArgument) << bad;
}

TEST(Addresses, OfThisMachine) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("no.such.host.invalid"), std::nullopt);
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(interface_with("127.0.0.1"), "lo");
  EXPECT_EQ(interface_with("192.0.2.1"), "");
  EXPECT_TRUE(is_loopback("127.0.1.1") && is_loopback("::1") && !is_loopback("10.0.0.1"));
}

TEST(Wire, GreetingsArriveByteForByte) {
  const Greeting sent{"token", 3, 2, 7, true, {"A=x\ny", "B="}, {"prog", "", "a b", "\xff"}};
  Pipe pipe = make_pipe();
  const std::string text = encode(sent) + "15 1\n";
  ASSERT_EQ(write(pipe.write_end.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  pipe.write_end.reset();
  const Greeting got = read_greeting(pipe.read_end.get());
  EXPECT_EQ(encode(got), encode(sent));
  EXPECT_EQ(got.command, sent.command);
  char rest[6] = {};
  EXPECT_EQ(read(pipe.read_end.get(), rest, 5), 5);  // it took nothing of what follows
  const auto order = parse_order(std::string_view(rest, 4));
  ASSERT_TRUE(order);
  EXPECT_TRUE(order->signal == 15 && order->whole_group);
  EXPECT_THROW(read_greeting(pipe.read_end.get()), Error);
}

TEST(Wire, RecordsAreToldFromOtherLines) {
  const std::string line = record_head(RecordKind::err_piece, 12) + "@o 1 x";
  const auto record = parse_record(line);
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->kind == RecordKind::err_piece && record->rank == 12 && record->text == "@o 1 x");
  for (const char* other : {"", "@", "@z 1 x", "@o x", "o 1 x", "@o 1", "@o 1x"})
    EXPECT_FALSE(parse_record(other)) << other;
  for (const char* other : {"", "15", "15 x", "x 1", "15 1 1"}) EXPECT_FALSE(parse_order(other)) << other;
}

}  // namespace
}  // namespace starling::launch

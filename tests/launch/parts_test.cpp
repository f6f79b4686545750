#include <csignal>
#include <gmock/gmock.h>
#include <limits>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/os/child.h"
#include "starling/base/os/pipe.h"
#include "starling/base/os/processes.h"
#include "starling/launch/address.h"
#include "starling/launch/cpus.h"
#include "starling/launch/environment.h"
#include "starling/launch/host_protocol.h"
#include "starling/launch/hosts.h"
#include "starling/launch/output.h"

namespace starling::launch {
namespace {

using testing::ElementsAre;

TEST(Cpus, SharesAreContiguousAndUseAllCores) {
  const std::vector<int> cpus = {0, 1, 2, 3, 8, 9, 10};
  EXPECT_THAT(share_of_cpus(cpus, 0, 3), ElementsAre(0, 1));
  EXPECT_THAT(share_of_cpus(cpus, 1, 3), ElementsAre(2, 3));
  EXPECT_THAT(share_of_cpus(cpus, 2, 3), ElementsAre(8, 9, 10));
  EXPECT_THAT(share_of_cpus(cpus, 0, 1), testing::ElementsAreArray(cpus));
}

TEST(Cpus, AssignsFewCoresRoundRobin) {
  const std::vector<int> cpus = {2, 5};
  for (const auto& [rank, cpu] : {std::pair{0, 2}, {1, 5}, {2, 2}, {3, 5}, {4, 2}})
    EXPECT_THAT(share_of_cpus(cpus, rank, 5), ElementsAre(cpu));
}

TEST(Cpus, SomeCpusAreUsable) {
  EXPECT_FALSE(allowed_cpus().empty());
}

struct Pieces {
  std::vector<std::pair<std::string, bool>> seen;
  void operator()(std::string_view text, bool ended) { seen.emplace_back(text, ended); }
};

TEST(LineSplitter, EmitsWholeLinesFromAnyChunks) {
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

TEST(LineSplitter, SplitsLongLines) {
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

TEST(Ending, DescribesHowAProcessEnded) {
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

TEST(Hosts, ParsesHostsAndRanks) {
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

TEST(Addresses, FindsAddressesOfThisMachine) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("no.such.host.invalid"), std::nullopt);
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(interface_with("127.0.0.1"), "lo");
  EXPECT_EQ(interface_with("192.0.2.1"), "");
  EXPECT_TRUE(is_loopback("127.0.1.1") && is_loopback("::1") && !is_loopback("10.0.0.1"));
}

TEST(HostProtocol, StartMessagesAreReadBackUnchanged) {
  const StartMessage sent{"token", 3, 2, 7, true, {"A=x\ny", "B="}, {"prog", "", "a b", "\xff"}};
  Pipe pipe = make_pipe();
  const std::string text = encode(sent) + "15 1\n";
  ASSERT_EQ(write(pipe.write_end.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  pipe.write_end.reset();
  const StartMessage got = read_start_message(pipe.read_end.get());
  EXPECT_EQ(encode(got), encode(sent));
  EXPECT_EQ(got.command, sent.command);
  char rest[6] = {};
  EXPECT_EQ(read(pipe.read_end.get(), rest, 5), 5);  // nothing beyond the message was read
  const auto order = parse_signal_request(std::string_view(rest, 4));
  ASSERT_TRUE(order);
  EXPECT_TRUE(order->signal == 15 && order->whole_group);
  EXPECT_THROW(read_start_message(pipe.read_end.get()), Error);
}

// The error of reading a start message; `more` is written repeatedly until the reader stops.
std::string refusal_of(const std::string& start, const std::string& more) {
  Pipe pipe = make_pipe();
  std::thread writer([&, end = std::move(pipe.write_end)] {
    const auto send = [&](const std::string& text) {
      return write(end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    if (!send(start) || more.empty()) return;
    while (send(more)) {
    }
  });
  std::string text;
  try {
    read_start_message(pipe.read_end.get());
  } catch (const Error& error) {
    text = error.what();
  }
  pipe.read_end.reset();
  writer.join();
  return text;
}

TEST(HostProtocol, LimitsTheSizeOfStartMessages) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string good = encode(StartMessage{"token", 0, 1, 1, false, {}, {}});
  const std::string head = good.substr(0, good.size() - 4);  // without its two empty lists
  const std::string too_long = "the start message is longer than starling run --hosts sends";
  EXPECT_EQ(refusal_of(std::string(100, 'x'), std::string(1 << 15, 'x')), too_long) << "one endless word";
  EXPECT_EQ(refusal_of(head + "4294967295" + '\0', std::string(1 << 15, '\0')), too_long) << "endless words";
  EXPECT_EQ(refusal_of(good, ""), "");
  EXPECT_EQ(refusal_of(head + std::string(1000, '9') + '\0', ""),
            "'" + std::string(40, '9') + "' is not a number, as starling run --hosts sends it");
}

TEST(HostProtocol, RejectsRanksOutsideTheJob) {
  const auto refusal = [](Rank first, Rank ranks, Rank size) {
    return refusal_of(encode(StartMessage{"token", first, ranks, size, false, {}, {"true"}}), "");
  };
  EXPECT_EQ(refusal(0, 1, 1), "");
  EXPECT_EQ(refusal(2, 2, 4), "");
  EXPECT_EQ(refusal(3, 2, 4),
            "2 ranks from rank 3 on, in a job of 4: starling run --hosts sends no such request");
  for (const auto& [first, ranks, size] :
       {std::tuple(-1, 1, 1), std::tuple(0, 0, 1), std::tuple(0, -5, 1), std::tuple(0, 1, 0),
        std::tuple(std::numeric_limits<Rank>::max(), 1, 4),
        std::tuple(0, 1, std::numeric_limits<Rank>::max())})
    EXPECT_NE(refusal(first, ranks, size), "") << first << ' ' << ranks << ' ' << size;
}

TEST(HostProtocol, RecognizesRecordsAmongOtherLines) {
  const std::string line = record_head(HostRecordKind::err_piece, 12) + "@o 1 x";
  const auto record = parse_record(line);
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->kind == HostRecordKind::err_piece && record->rank == 12 && record->text == "@o 1 x");
  for (const char* other : {"", "@", "@z 1 x", "@o x", "o 1 x", "@o 1", "@o 1x"})
    EXPECT_FALSE(parse_record(other)) << other;
  for (const char* other : {"", "15", "15 x", "x 1", "15 1 1"})
    EXPECT_FALSE(parse_signal_request(other)) << other;
}

}  // namespace
}  // namespace starling::launch

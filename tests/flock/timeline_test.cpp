// Covers what starling/flock writes to starling/record: timelines and flight recorders.
#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <signal.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "flock/flock_fixture.h"
#include "kernel/device_block.h"
#include "record/folder.h"
#include "starling/flock/byte_operations.h"
#include "starling/report/timeline_trace.h"

// What flocks record: timelines, and flight records for the errors that write them.

namespace starling::flock {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::vector<RankEnd> processes(Rank size, const FlockBody& body) {
  const auto& all = launchers();
  const auto found = std::find_if(all.begin(), all.end(), [](const Launcher& one) { return one.processes; });
  return found->run(size, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(40s);
    body(flock);
  });
}

json merged(const std::string& file) {
  std::ostringstream out;
  report::write_chrome_trace(out, read_timeline(file));
  return json::parse(out.str()).at("traceEvents");
}

// The slices with this name, by rank.
std::map<int, std::vector<json>> slices(const json& events, const std::string& name) {
  std::map<int, std::vector<json>> found;
  for (const json& event : events)
    if (event.at("ph") == "X" && event.at("name") == name) found[event.at("pid")].push_back(event);
  return found;
}

TEST(FlockTimeline, SurvivesSigkill) {
  const RecordFolder folder;
  const Variable on("STARLING_TIMELINE", folder.path("t"));
  constexpr int kSteps = 30;
  const auto ends = processes(3, [](Flock& flock) {
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule("ring");
    std::vector<float> x(250, 1);
    flock.average(x, "first");
    for (int k = 0; k < kSteps; ++k) {
      if (flock.rank() == 1 && k == 10) kill(getpid(), SIGKILL);
      if (flock.rank() == 0 && k == 5) std::this_thread::sleep_for(30ms);
      flock.neighbor_allreduce(x, "mix");
    }
  });
  EXPECT_EQ(ends[1].signal, SIGKILL);
  EXPECT_TRUE(ends[0].ok && ends[2].ok) << ends[0].message << ends[2].message;

  const json events = merged(folder.path("t"));
  std::set<std::string> rows;
  double last = 0;
  for (const json& event : events) {
    if (event.at("name") == "process_name") rows.insert(event.at("args").at("name"));
    if (event.at("ph") != "X" || event.at("name") == "waiting") continue;
    EXPECT_GE(event.at("ts").get<double>(), last);
    last = event.at("ts");
  }
  EXPECT_EQ(rows, (std::set<std::string>{"rank 0", "rank 1", "rank 2"}));
  auto first = slices(events, "first");
  auto mixes = slices(events, "mix");
  for (const int rank : {0, 1, 2}) {
    ASSERT_EQ(first[rank].size(), 1u);
    EXPECT_EQ(first[rank][0].at("args").at("bytes"), 4 * 1000);  // to and from two others
    ASSERT_EQ(mixes[rank].size(), rank == 1 ? 10u : 30u);
    for (int k = 0; k < 10; ++k) {
      const json& args = mixes[rank][static_cast<std::size_t>(k)].at("args");
      EXPECT_EQ(args.at("step"), k);
      EXPECT_EQ(args.at("peers").size(), 2u);
      EXPECT_EQ(args.at("error"), false);
      EXPECT_EQ(args.at("bytes"), 4 * 1000);
    }
  }
  // Rank 0 was late for step 5: the others waited, and their rows show it.
  for (const int rank : {1, 2}) {
    const json& late = mixes[rank][5];
    EXPECT_GT(late.at("args").at("waited_us").get<double>(), 15'000);
    const auto waits = slices(events, "waiting")[rank];
    const bool inside = std::any_of(waits.begin(), waits.end(), [&](const json& wait) {
      return wait.at("dur") == late.at("args").at("waited_us") && wait.at("ts") >= late.at("ts") &&
             wait.at("ts").get<double>() + wait.at("dur").get<double>() <=
                 late.at("ts").get<double>() + late.at("dur").get<double>() + 0.01;
    });
    EXPECT_TRUE(inside);
  }
}

TEST(FlockTimeline, RecordsEveryKindOfOperation) {
  const RecordFolder folder;
  const Variable on("STARLING_TIMELINE", folder.path("t"));
  const auto ends = processes(2, [](Flock& flock) {
    const Rank other = 1 - flock.rank();
    std::vector<float> x(100, 1);
    std::vector<float> big(3 << 20, 1);  // travels in parts
    auto slow = flock.allreduce_nonblocking(x, x, Reduction::sum, "slow");
    flock.neighbor_allreduce(big, "big");
    slow.wait();
    flock.send(x, other, "letter");
    flock.recv(x, other, "letter");
    auto window = flock.create_window(x, "window");
    window.put();
    window.accumulate();
    window.get();
    window.update();
    window.free();
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  const json events = merged(folder.path("t"));
  const auto kinds = [&](const std::string& name) {
    std::multiset<std::string> found;
    const auto of_all = slices(events, name);
    for (const json& event : of_all.at(0)) found.insert(event.at("cat"));
    return found;
  };
  EXPECT_EQ(kinds("letter"), (std::multiset<std::string>{"send", "receive"}));
  EXPECT_EQ(kinds("window"), (std::multiset<std::string>{"put", "accumulate", "get", "update"}));
  EXPECT_EQ(slices(events, "big")[0][0].at("args").at("bytes"), 2 * (12 << 20));
  const auto window = slices(events, "window");
  for (const json& event : window.at(0)) {
    EXPECT_EQ(event.at("args").at("bytes"), 400);
    EXPECT_EQ(event.at("args").at("peers"), json({1}));
  }
  // Overlapping operations are on different rows.
  EXPECT_NE(slices(events, "slow")[0][0].at("tid"), slices(events, "big")[0][0].at("tid"));
}

TEST(FlockTimeline, DevicesHaveRowsOfTheirOwn) {
  const RecordFolder folder;
  const Variable on("STARLING_TIMELINE", folder.path("t"));
  const auto ends = fabric::device_launchers()[1].run(2, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(40s);
    const Rank other = 1 - flock.rank();
    const kernel::DeviceBlock<float> x(std::vector<float>(1000, 1)), y(1000);
    const ByteOperations operations(flock);
    for (int k = 0; k < 3; ++k) operations.neighbor_allreduce({{x.buffer(), y.buffer()}}, {}, "mix").wait();
    operations.allreduce({{x.buffer(), x.buffer()}}, Reduction::sum, "sum").wait();
    operations.send(x.buffer(), other, "letter");
    operations.recv(y.buffer(), other, "letter").wait();
    std::vector<float> on_host(10, 1);
    flock.allreduce(on_host, Reduction::sum, "of the host");
    operations.record_update("x", 7, [&] { arithmetic_in(MemoryKind::cuda).scale(x.buffer(), 0.5); });
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;

  const json events = merged(folder.path("t"));
  std::map<int, int> rows;  // of the device, by rank
  for (const json& event : events)
    if (event.at("name") == "thread_name" && event.at("args").at("name") == "GPU 0")
      rows[event.at("pid")] = event.at("tid");
  ASSERT_EQ(rows.size(), 2u);
  std::map<int, std::multiset<std::string>> on_device, on_host;
  for (const json& event : events) {
    if (event.at("ph") != "X" || event.at("name") == "waiting") continue;
    const int rank = event.at("pid");
    (event.at("tid") >= rows.at(rank) ? on_device : on_host)[rank].insert(event.at("name"));
    EXPECT_GE(event.at("dur").get<double>(), 0);
  }
  for (const int rank : {0, 1}) {
    std::multiset<std::string> names = {"mix", "mix", "mix", "sum", "letter", "letter"};
    EXPECT_TRUE(std::ranges::includes(on_host[rank], names));
    EXPECT_EQ(on_host[rank].count("of the host"), 1u);
    names.insert("x/update");
    EXPECT_EQ(on_device[rank], names);
  }
  // The device begins an operation after the host.
  for (auto& [rank, sums] : slices(events, "sum")) {
    ASSERT_EQ(sums.size(), 2u);
    if (sums[0].at("tid") > sums[1].at("tid")) std::swap(sums[0], sums[1]);
    EXPECT_GT(sums[1].at("ts").get<double>() + 1000, sums[0].at("ts").get<double>());
    EXPECT_EQ(sums[1].at("args").at("bytes"), sums[0].at("args").at("bytes"));
  }
}

TEST(FlockFlight, ComesWithPeerLostAndTimedOutOnly) {
  const RecordFolder folder;
  const Variable where("STARLING_FLIGHT", folder.path(""));
  const auto ends = processes(3, [](Flock& flock) {
    std::vector<float> x(10, 1);
    flock.average(x, "together");
    if (flock.rank() == 0) {  // waits for a message that is never sent
      flock.set_timeout(300ms);
      message_of<TimedOut>([&] { flock.recv(x, 2, "never"); });
      flock.send(x, 2, "timed out");
    } else if (flock.rank() == 1) {
      message_of<PeerLost>([&] { flock.recv(x, 2, "from the dead"); });
    } else {
      message_of<InvalidArgument>([&] { flock.recv(x, 7); });
      flock.recv(x, 0, "timed out");
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  const std::string late = folder.read("flight-0.txt");
  EXPECT_THAT(late, HasSubstr("never waited"));
  EXPECT_THAT(late, HasSubstr("together (all-reduce) with ranks 1, 2: ended\n"));
  EXPECT_THAT(late, HasSubstr("never (receive) with rank 2: FAILED\n"));
  const std::string lost = folder.read("flight-1.txt");
  EXPECT_THAT(lost, HasSubstr("rank 2 is lost"));
  EXPECT_THAT(lost, HasSubstr("from the dead (receive) with rank 2: FAILED\n"));
  EXPECT_EQ(folder.read("flight-2.txt"), "");
}

// As in error messages: the user's call and the training step, not the schedule's step.
TEST(FlockFlight, ShowsTheCallOfTheUserWithItsStep) {
  const RecordFolder folder;
  const Variable where("STARLING_FLIGHT", folder.path(""));
  const auto ends = processes(2, [](Flock& flock) {
    const auto call = std::make_shared<UserCall>();
    call->call = "Trainer::step()";
    call->part = "bucket 3";
    flock.set_user_call("trainer/0", call);
    std::vector<float> x(10, 1);
    flock.neighbor_allreduce(x, "mine");
    call->step = 40;
    flock.neighbor_allreduce(x, "trainer/0/mix");
    call->step = 41;
    if (flock.rank() == 1) return;
    message_of<PeerLost>([&] { flock.recv(x, 1, "trainer/0/mix"); });
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  const std::string text = folder.read("flight-0.txt");
  EXPECT_THAT(text, HasSubstr(" mine (neighbor average, step 0) with rank 1: ended\n"));
  EXPECT_THAT(text, HasSubstr(" Trainer::step(), bucket 3 (neighbor average, step 40) with rank 1: ended\n"));
  EXPECT_THAT(text, HasSubstr(" Trainer::step(), bucket 3 (receive, step 41) with rank 1: FAILED\n"));
  EXPECT_THAT(text, Not(HasSubstr("trainer/0")));
}

TEST(FlockLog, JoiningRefusesUnknownLevels) {
  const Variable level("STARLING_LOG", "loud");
  EXPECT_EQ(message_of<InvalidArgument>([] { join(); }),
            "STARLING_LOG=loud is invalid; valid: quiet, normal, info, debug");
}

}  // namespace
}  // namespace starling::flock

#include "starling/record/timeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "starling/record/ticks.h"
#include "starling/record/timeline_layout.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Writes two operations of at least 1 ms on each of these ranks; half of the second one is waiting.
void write_parts(const Folder& folder, const std::vector<Rank>& ranks, Rank size) {
  for (const Rank rank : ranks) {
    Timeline timeline(folder.path(fmt::format("t.json.{}", rank)), rank, size);
    TimelineRecord record;
    record.peer_count = 1;
    record.peers[0] = 1;
    record.bytes = 500;
    for (const char* name : {"first", "second"}) {
      record.start = ticks();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      record.end = ticks();
      record.name = timeline.name(name);
      record.waited = record.name == 0 ? 0 : (record.end - record.start) / 2;
      timeline.write(record);
    }
  }
}

TEST(TimelineCommand, MergesIntoATrace) {
  const Folder folder;
  write_parts(folder, {0, 2}, 3);
  const ToolRun run = run_tool({"timeline", "merge", folder.path("t.json"), "-o", folder.path("out.json")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, StartsWith("starling: of 3 ranks these left no timeline: 1\n"));
  EXPECT_THAT(run.err, HasSubstr("4 operations of 2 ranks are in " + folder.path("out.json")));
  const auto events = nlohmann::json::parse(read_file(folder.path("out.json"))).at("traceEvents");
  int waits = 0, operations = 0;
  double operation = 0;  // microseconds of the last operation
  for (const auto& event : events) {
    if (event.at("ph") != "X") continue;
    const double duration = event.at("dur");
    if (event.at("name") == "waiting") {
      ++waits;
      EXPECT_NEAR(duration, operation / 2, 1);
    } else {
      ++operations;
      operation = duration;
      EXPECT_GT(duration, 950);
      EXPECT_EQ(event.at("args").at("bytes"), 500);
      EXPECT_EQ(event.at("args").at("peers"), nlohmann::json({1}));
    }
  }
  EXPECT_EQ(operations, 4);
  EXPECT_EQ(waits, 2);
  EXPECT_EQ(run_tool({"timeline", "merge", folder.path("t.json")}).status, 0);  // writes to FILE itself
  EXPECT_EQ(nlohmann::json::parse(read_file(folder.path("t.json"))).at("traceEvents"), events);
}

TEST(TimelineCommand, SummarizesAndDraws) {
  const Folder folder;
  write_parts(folder, {0, 1}, 2);
  const ToolRun run = run_tool({"timeline", "summary", folder.path("t.json")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, testing::ContainsRegex("first +2 +0 .* 0 % +1 kB"));
  EXPECT_THAT(run.out, testing::ContainsRegex("second +2 +0 .* 50 % +1 kB"));
  EXPECT_EQ(run_tool({"timeline", "draw", folder.path("t.json"), "-o", folder.path("t.svg")}).status, 0);
  EXPECT_THAT(read_file(folder.path("t.svg")), HasSubstr("second step 0"));
}

TEST(TimelineCommand, DevicesHaveRowsBelowTheHosts) {
  const Folder folder;
  {
    Timeline timeline(folder.path("t.json.0"), 0, 1);
    TimelineRecord record;
    record.name = timeline.name("mix");
    record.bytes = 500;
    for (const int device : {0, 1, 1, 3}) {  // 0: the host
      record.device = static_cast<std::uint8_t>(device);
      if (record.start == 0 || device == 3) record.start = ticks();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      record.end = ticks();
      timeline.write(record);
    }
  }
  const ToolRun merge = run_tool({"timeline", "merge", folder.path("t.json"), "-o", folder.path("out.json")});
  EXPECT_THAT(merge.err, HasSubstr("1 operation of 1 rank are in "));
  std::vector<std::string> rows;
  const auto trace = nlohmann::json::parse(read_file(folder.path("out.json")));
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("name") == "thread_name") rows.push_back(event.at("args").at("name"));
  EXPECT_THAT(rows, testing::ElementsAre("operations", "GPU 0", "GPU 0, overlapping 1", "GPU 2"));
  const ToolRun summary = run_tool({"timeline", "summary", folder.path("t.json")});
  EXPECT_THAT(summary.out, testing::ContainsRegex("mix +1 +0 .* 0 % +500 B"));
  EXPECT_THAT(summary.out, testing::ContainsRegex("mix .GPU. +3 +0 .* - +1.5 kB"));
  EXPECT_EQ(run_tool({"timeline", "draw", folder.path("t.json"), "-o", folder.path("t.svg")}).status, 0);
  const std::string picture = read_file(folder.path("t.svg"));
  for (const char* text : {">rank 0<", ">GPU 0<", ">GPU 2<", "ms on GPU 2, 500 B"})
    EXPECT_THAT(picture, HasSubstr(text));
}

TEST(TimelineCommand, SaysWhatIsDamaged) {
  const Folder folder;
  write_parts(folder, {0, 1}, 2);
  std::string text = read_file(folder.path("t.json.1"));
  std::fill_n(text.begin() + record::kTimelineRecordsAt, 20, '\x7f');
  folder.write("t.json.1", text);
  const ToolRun run = run_tool({"timeline", "summary", folder.path("t.json")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err,
            "starling: " + folder.path("t.json") + ".1 is damaged: 1 of its 2 operations are left out\n");
  EXPECT_THAT(run.out, testing::ContainsRegex("first +1 "));
}

TEST(TimelineCommand, PrintsMistakesInOneLine) {
  const Folder folder;
  const auto complaint = [&](const std::string& command) {
    const ToolRun run = run_tool({"timeline", command, folder.path("t.json")});
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    return run.err;
  };
  EXPECT_THAT(complaint("merge"), HasSubstr("t.json.0; was the program run with STARLING_TIMELINE="));
  folder.write("t.json", "{}");
  EXPECT_THAT(complaint("summary"),
              HasSubstr("t.json is not a Starling timeline: ranks with STARLING_TIMELINE="));
  write_parts(folder, {0}, 1);
  const std::string good = read_file(folder.path("t.json.0"));
  folder.write("t.json", good);
  std::filesystem::remove(folder.path("t.json.0"));
  EXPECT_THAT(complaint("summary"), HasSubstr("t.json is the timeline of one rank"));
  const ToolRun backwards =
      run_tool({"timeline", "draw", folder.path("t.json"), "--seconds", "-1", "-o", folder.path("t.svg")});
  EXPECT_EQ(backwards.status, 2);
  EXPECT_THAT(backwards.err, HasSubstr("--seconds: -1 is not a number of seconds above 0"));
  folder.write("t.json.0", good.substr(0, 100'000));
  EXPECT_THAT(complaint("summary"), HasSubstr("t.json.0 is truncated"));
  folder.write("t.json.0", "hello, this is a text and nothing else");
  EXPECT_THAT(complaint("merge"), HasSubstr("t.json.0 is not a Starling timeline file"));
  folder.write("t.json.0", good);
  folder.write("t.json.1", good);
  EXPECT_THAT(complaint("merge"), HasSubstr("t.json.1 is the timeline of rank 0"));
}

TEST(TimelineCommand, RunMergesTheTimeline) {
  const Folder folder;
  write_parts(folder, {7}, 8);  // left by an earlier run
  const ToolRun nothing = run_tool({"run", "-n", "2", "--timeline", folder.path("t.json"), "--", "true"});
  EXPECT_EQ(nothing.status, 0);
  EXPECT_EQ(nothing.err, "starling: no timeline: no rank has left one beside " + folder.path("t.json") +
                             "; programs that join no flock do not\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path("t.json.7")));
  write_parts(folder, {0}, 2);
  std::filesystem::rename(folder.path("t.json.0"), folder.path("made"));
  const ToolRun run =
      run_tool({"run", "-n", "2", "--timeline", folder.path("t.json"), "--", "sh", "-c",
                "[ $STARLING_RANK = 1 ] || cp " + folder.path("made") + " $STARLING_TIMELINE.0"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("2 operations of 1 rank are in " + folder.path("t.json")));
  EXPECT_TRUE(nlohmann::json::accept(read_file(folder.path("t.json"))));
}

}  // namespace
}  // namespace starling::tool

#include "starling/record/timeline.h"

#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <thread>

#include "record/folder.h"
#include "starling/base/error.h"
#include "starling/record/ticks.h"
#include "starling/record/timeline_layout.h"
#include "starling/record/timeline_reader.h"
#include "starling/record/trace.h"

namespace starling::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TimelineRecord record_of(std::uint16_t name, Step step) {
  TimelineRecord record;
  record.start = ticks();
  record.end = record.start;
  record.name = name;
  record.step = step;
  return record;
}

// Waits a moment and returns its duration in ns: timelines convert the processor's own clock.
std::int64_t let_time_pass() {
  constexpr std::uint64_t kEnough = 5'000'000;
  const std::uint64_t begin = steady_ns();
  while (steady_ns() < begin + kEnough) std::this_thread::yield();
  return static_cast<std::int64_t>(steady_ns() - begin);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TimelineTest, ReadsBackWhatWasWritten) {
  const RecordFolder folder;
  std::optional<Recorder> recorder;
  {
    const Variable on("STARLING_TIMELINE", folder.path("t"));
    recorder.emplace(1, 4);
  }
  const std::string text = "sum";
  std::uint32_t number = 0;
  const std::uint64_t before = steady_ns();
  std::int64_t waited = 0;
  std::int64_t worked = 0;
  {
    Trace trace(*recorder, {text, number}, RecordKind::reduction, {7, 7});
    for (const Rank peer : {3, 0, 2, 0}) trace.peer(peer);
    trace.bytes(100);
    const std::uint64_t began = trace.wait_begins();
    waited = let_time_pass();
    trace.wait_ends(began);
    worked = let_time_pass();
    trace.bytes(50);
    trace.end(false);
  }
  { const Trace dropped(*recorder, {text, number}, RecordKind::get, {8, 8}); }
  const std::uint64_t after = steady_ns();
  // Reads the part while its writer is alive; a killed writer leaves the same data.
  const TimelinePart part = read_timeline_part(folder.path("t.1"));
  EXPECT_EQ(part.rank, 1);
  EXPECT_EQ(part.size, 4);
  EXPECT_EQ(part.overwritten, 0u);
  EXPECT_THAT(part.names, ElementsAre("sum"));
  ASSERT_EQ(part.events.size(), 2u);
  const TimelineEvent& event = part.events[0];
  EXPECT_EQ(event.kind, RecordKind::reduction);
  EXPECT_EQ(event.step, 7);
  EXPECT_EQ(event.bytes, 150u);
  EXPECT_FALSE(event.failed);
  EXPECT_THAT(event.peers, ElementsAre(3, 0, 2));
  constexpr std::int64_t kSlack = 1'000'000;
  EXPECT_GE(event.start, static_cast<std::int64_t>(before) - kSlack);
  EXPECT_LE(event.end, static_cast<std::int64_t>(after) + kSlack);
  EXPECT_GE(event.waited, waited - kSlack);
  EXPECT_GE(event.end - event.start - event.waited, worked - kSlack);
  EXPECT_GE(event.wait_start, event.start);
  EXPECT_LE(event.wait_start + event.waited, event.end);
  EXPECT_TRUE(part.events[1].failed);
}

TEST(TimelineTest, NewEventsOverwriteTheOldest) {
  const RecordFolder folder;
  for (const int written : {9, 10, 11, 25}) {
    Timeline timeline(folder.path("t.0"), 0, 1, 10);
    const std::uint16_t name = timeline.name("x");
    for (int k = 0; k < written; ++k) timeline.write(record_of(name, k));
    const TimelinePart part = read_timeline_part(folder.path("t.0"));
    const int kept = 9;  // the tenth may be overwritten in part
    ASSERT_EQ(part.events.size(), 9u) << written;
    EXPECT_EQ(part.overwritten, static_cast<std::uint64_t>(written - kept));
    for (int k = 0; k < kept; ++k)
      EXPECT_EQ(part.events[static_cast<std::size_t>(k)].step, written - kept + k);
  }
}

TEST(TimelineTest, NamesBeyondTheTableShareOne) {
  const RecordFolder folder;
  Timeline timeline(folder.path("t.0"), 0, 1);
  for (int k = 0; k < 1500; ++k) timeline.write(record_of(timeline.name(fmt::format("name {}", k)), k));
  const std::string longer(200, 'y');
  EXPECT_EQ(timeline.name(longer), 1023);
  EXPECT_EQ(timeline.name("name 5"), 5);
  const TimelinePart part = read_timeline_part(folder.path("t.0"));
  ASSERT_EQ(part.names.size(), 1024u);
  for (std::size_t k = 0; k < 1500; ++k)
    EXPECT_EQ(part.names[part.events[k].name], k < 1023 ? fmt::format("name {}", k) : "(other names)");
}

TEST(TimelineTest, TruncatesLongNames) {
  const RecordFolder folder;
  Timeline timeline(folder.path("t.0"), 0, 1);
  timeline.write(record_of(timeline.name(std::string(200, 'y')), 0));
  EXPECT_THAT(read_timeline_part(folder.path("t.0")).names, ElementsAre(std::string(56, 'y')));
}

TEST(TimelineTest, ThreadsDoNotLoseEvents) {
  const RecordFolder folder;
  Timeline timeline(folder.path("t.0"), 0, 1, 100'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::uint16_t name = timeline.name(fmt::format("thread {}", t));
      for (int k = 0; k < 20'000; ++k) timeline.write(record_of(name, k));
    });
  for (std::thread& thread : threads) thread.join();
  const TimelinePart part = read_timeline_part(folder.path("t.0"));
  ASSERT_EQ(part.events.size(), 80'000u);
  std::vector<Step> next(4, 0);
  for (const TimelineEvent& event : part.events) EXPECT_EQ(event.step, next[event.name]++);
}

TEST(TimelineTest, NamesInvalidFiles) {
  const RecordFolder folder;
  { Timeline(folder.path("t.0"), 0, 1, 100).write({}); }
  const std::string good = folder.read("t.0");
  const auto complaint = [&](const std::string& text) {
    folder.write("bad", text);
    return error_of([&] { read_timeline_part(folder.path("bad")); });
  };
  EXPECT_THAT(complaint(good.substr(0, 40)),
              HasSubstr("bad is not a Starling timeline file: it is too short"));
  EXPECT_THAT(complaint(good.substr(0, good.size() - 1)), HasSubstr("is truncated"));
  EXPECT_THAT(complaint("x" + good.substr(1)), HasSubstr("is not a Starling timeline file"));
  std::string newer = good;
  newer[8] = 9;
  EXPECT_THAT(complaint(newer), HasSubstr("is a timeline of version 9; this program reads version 2"));
  EXPECT_THAT(complaint(good), HasSubstr("is a damaged timeline"));  // an event without a name
  EXPECT_THAT(error_of([&] { read_timeline_part(folder.path("none")); }), HasSubstr("No such file"));
}

// Sizes and clocks in the file are untrusted: no value takes memory or overflows.
TEST(TimelineTest, RejectsHostileHeaders) {
  const RecordFolder folder;
  {
    Timeline timeline(folder.path("t.0"), 0, 1, 100);
    timeline.write(record_of(timeline.name("x"), 0));
  }
  const std::string good = folder.read("t.0");
  const auto complaint = [&](const auto& damage) {
    std::string text = good;
    damage(*reinterpret_cast<TimelineHeader*>(text.data()));
    folder.write("t.0", text);
    return error_of([&] { read_timeline(folder.path("t")); });
  };
  EXPECT_EQ(complaint([](TimelineHeader&) {}), "");
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.size = 0x7fffffff; }),
              HasSubstr("t.0 is a damaged timeline: it claims 2147483647 ranks; the maximum is 65536"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.size = -1; }), HasSubstr("damaged"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.capacity = ~0ULL; }), HasSubstr("truncated"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.capacity = 1ULL << 58; }), HasSubstr("truncated"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.names = ~0U; }), HasSubstr("damaged"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.written = 11368254064249536533U; }),
              HasSubstr("t.0 is a damaged timeline: it claims 11368254064249536533 events"));
  EXPECT_THAT(complaint([](TimelineHeader& head) {
                reinterpret_cast<char*>(&head)[kTimelineNamesAt + kTimelineNameBytes - 1] = 7;
              }),
              HasSubstr("t.0 is a damaged timeline: its name 0 is not terminated"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.first.ns = ~0ULL; }), HasSubstr("clocks"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.later[head.latest].ns = 1ULL << 63; }),
              HasSubstr("clocks"));
  EXPECT_THAT(complaint([](TimelineHeader& head) { head.wall_ns = 1ULL << 63; }), HasSubstr("clocks"));
}

// Damaged records must not be read as operations of exabytes or years.
TEST(TimelineTest, LeavesDamagedRecordsOut) {
  const RecordFolder folder;
  constexpr std::size_t kEvents = 12;
  {
    Timeline timeline(folder.path("t.0"), 0, 2, 100);
    for (std::size_t i = 0; i < kEvents; ++i) timeline.write(record_of(timeline.name("x"), 0));
  }
  std::string text = folder.read("t.0");
  const auto record = [&](std::size_t i) -> TimelineRecord& {
    return reinterpret_cast<TimelineRecord*>(text.data() + kTimelineRecordsAt)[i];
  };
  record(1).bytes = ~0ULL;
  record(2).end = record(2).start - 1;
  record(3).start = 0;
  record(4).end = ~0ULL;
  record(5).name = 1;
  record(6).kind = static_cast<RecordKind>(63);
  record(7).peer_count = 1;
  record(7).peers[0] = 2;
  record(8).failed = 2;
  std::memset(static_cast<void*>(&record(9)), 0xA5, sizeof(TimelineRecord));
  folder.write("t.0", text);
  const TimelineRun run = read_timeline(folder.path("t"));
  EXPECT_EQ(run.parts[0].damaged, 9u);
  EXPECT_EQ(run.parts[0].events.size(), kEvents - 9);
}

TEST(TimelineTest, HostileRecordsStayWithinTheClock) {
  const RecordFolder folder;
  {
    Timeline timeline(folder.path("t.0"), 0, 1, 100);
    TimelineRecord record = record_of(timeline.name("x"), 0);
    for (const std::uint64_t tick : {0ULL, 1ULL << 63, ~0ULL}) {
      record.end = tick;
      record.waited = tick;
      for (const float offset : {std::numeric_limits<float>::quiet_NaN(), -1e38F, 1e38F}) {
        record.wait_offset = offset;
        timeline.write(record);
      }
      record.start = tick;
      timeline.write(record);
    }
  }
  const TimelineRun run = read_timeline(folder.path("t"));
  EXPECT_EQ(run.parts[0].events.size() + run.parts[0].damaged, 12u);
  EXPECT_GE(run.parts[0].damaged, 9u);
  for (const TimelineEvent& event : run.parts[0].events) {
    EXPECT_LE(event.start, event.end);
    EXPECT_GE(event.wait_start, event.start);
    EXPECT_LE(event.wait_start + event.waited, event.end);
  }
}

TEST(TimelineTest, NamesMissingRanks) {
  const RecordFolder folder;
  EXPECT_THAT(error_of([&] { read_timeline(folder.path("t")); }), HasSubstr("there is no "));
  for (const Rank rank : {0, 2}) {
    Timeline timeline(folder.path(fmt::format("t.{}", rank)), rank, 4);
    timeline.write(record_of(timeline.name("x"), 0));
  }
  folder.write("t.3", std::string(1000, '\0'));  // killed while it started
  folder.write("t.old", "");
  const TimelineRun run = read_timeline(folder.path("t"));
  EXPECT_EQ(run.size, 4);
  EXPECT_EQ(run.parts.size(), 2u);
  EXPECT_THAT(run.missing, ElementsAre(1, 3));
}

TEST(TimelineTest, IsNotRecordedWhereItCannotBeWritten) {
  const RecordFolder folder;
  const Variable on("STARLING_TIMELINE", folder.path("none/t"));
  EXPECT_THAT(error_of([&] { Timeline(folder.path("none/t.0"), 0, 1); }),
              HasSubstr("none/t.0: No such file"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(Timeline::from_environment(0, 1), nullptr);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::MatchesRegex("starling: cannot write the timeline .*none/t.0: No such file or directory; "
                            "rank 0 continues without one\n"));
}

TEST(TimelineTest, ChecksSettings) {
  const RecordFolder folder;
  EXPECT_EQ(Timeline::from_environment(0, 1), nullptr);
  const Variable on("STARLING_TIMELINE", folder.path("t"));
  const Variable events("STARLING_TIMELINE_EVENTS", "many");
  EXPECT_THAT(error_of([] { Timeline::from_environment(0, 1); }),
              HasSubstr("STARLING_TIMELINE_EVENTS=many is not a whole number from 1 to "));
}

}  // namespace
}  // namespace starling::record

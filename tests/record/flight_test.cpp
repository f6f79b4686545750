#include "starling/record/flight.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/folder.h"
#include "starling/record/log.h"

namespace starling::record {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(FlightTest, ListsTheLastOperationsNewestLast) {
  Flight flight(3);
  const std::string name = "sum";
  EXPECT_TRUE(flight.lines().empty());
  for (int k = 0; k < 1000; ++k) {
    const auto number = flight.begin(name, RecordKind::reduction, k);
    for (std::uint32_t i = 0; i < 8; ++i) flight.peer(number, i, static_cast<Rank>(i));
    if (k != 998) flight.end(number, k == 999);
  }
  const auto lines = flight.lines();
  ASSERT_EQ(lines.size(), Flight::kKept);
  EXPECT_THAT(lines[0],
              HasSubstr("s ago sum (all-reduce, step 744) with ranks 0, 1, 2, 3, 4, 5 and 2 more: ended"));
  EXPECT_THAT(lines[254], EndsWith("has not ended"));
  EXPECT_THAT(lines[255], EndsWith("FAILED"));
  EXPECT_THAT(flight.lines(2)[0], HasSubstr("step 998"));
}

TEST(FlightTest, AnEndOfAnOverwrittenOperationIsIgnored) {
  Flight flight(0);
  const std::string name = "x";
  const auto old = flight.begin(name, RecordKind::average, 0);
  for (std::size_t k = 0; k < Flight::kKept; ++k) flight.begin(name, RecordKind::average, 1);
  flight.end(old, true);
  flight.peer(old, 0, 9);
  for (const std::string& line : flight.lines()) EXPECT_THAT(line, EndsWith("step 1): has not ended"));
}

TEST(FlightTest, DumpsToAFileAtMostOnceASecond) {
  const RecordFolder folder;
  const Variable where("STARLING_FLIGHT", folder.path("flights"));
  static std::uint64_t now = 5'000'000'000;
  Flight flight(2, [] { return now; });
  const std::string name = "x";
  for (int k = 0; k < 20; ++k) flight.begin(name, RecordKind::average, k);
  flight.dump("first");
  now += 999'999'999;
  flight.dump("second");
  std::string text = folder.read("flights/flight-2.txt");
  EXPECT_THAT(text, HasSubstr(": first\n  the last 20 operations, newest last:\n"));
  EXPECT_THAT(text, Not(HasSubstr("second")));
  now += 1;
  flight.dump("third");
  text = folder.read("flights/flight-2.txt");
  EXPECT_THAT(text, HasSubstr("first"));
  EXPECT_THAT(text, HasSubstr("third"));
}

TEST(FlightTest, DumpsAFewLinesToStandardErrorUnlessQuiet) {
  const std::string name = "x";
  for (const bool quiet : {false, true}) {
    const Variable level("STARLING_LOG", quiet ? "quiet" : "normal");
    read_log_level();
    Flight flight(2);
    for (int k = 0; k < 20; ++k) flight.begin(name, RecordKind::average, k);
    testing::internal::CaptureStderr();
    flight.dump("why");
    const std::string text = testing::internal::GetCapturedStderr();
    if (quiet) {
      EXPECT_EQ(text, "");
    } else {
      EXPECT_THAT(text, testing::StartsWith("starling: rank 2, "));
      EXPECT_THAT(text, HasSubstr("step 12)"));
      EXPECT_THAT(text, Not(HasSubstr("step 11)")));
    }
  }
  read_log_level();
}

}  // namespace
}  // namespace starling::record

#include "starling/report/number_text.h"

#include <gtest/gtest.h>
#include <limits>

namespace starling::report {
namespace {

TEST(NumberText, CompactTrimsZerosAndKeepsWholeNumbers) {
  EXPECT_EQ(compact(0.868640001), "0.86864");
  EXPECT_EQ(compact(1.2e-7), "1.2e-07");
  EXPECT_EQ(compact(0.5), "0.5");
  EXPECT_EQ(compact(33828034), "33828034");
  EXPECT_EQ(compact(123456.7), "123457");
  EXPECT_EQ(compact(99999.7), "100000");
  EXPECT_EQ(compact(-0.0), "0");
  EXPECT_EQ(compact(-2.5), "-2.5");
  EXPECT_EQ(compact(1.0 / 3, 3), "0.333");
  EXPECT_EQ(compact(1e300), "1e+300");
  EXPECT_EQ(compact(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(compact(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(NumberText, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1 kB");
  EXPECT_EQ(human_bytes(1536), "1.54 kB");
  EXPECT_EQ(human_bytes(999.9e3), "1 MB");
  EXPECT_EQ(human_bytes(3.25e9), "3.25 GB");
  EXPECT_EQ(human_bytes(-2000), "-2 kB");
}

TEST(NumberText, Counts) {
  EXPECT_EQ(human_count(4900), "4900");
  EXPECT_EQ(human_count(12345), "12.3k");
  EXPECT_EQ(human_count(999960), "1M");
  EXPECT_EQ(human_count(33828034), "33.8M");
  EXPECT_EQ(human_count(2e9), "2G");
  EXPECT_EQ(human_count(2.4e20), "2.4e+20");
}

TEST(NumberText, OneIsSingular) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(4, "rank"), "4 ranks");
}

TEST(NumberText, Times) {
  EXPECT_EQ(human_time(0), "0 s");
  EXPECT_EQ(human_time(8.5e-7), "850 ns");
  EXPECT_EQ(human_time(1.23e-5), "12.3 µs");
  EXPECT_EQ(human_time(0.9999), "1 s");
  EXPECT_EQ(human_time(2.5), "2.5 s");
  EXPECT_EQ(human_time(59.99), "1 min");
  EXPECT_EQ(human_time(200), "3 min 20 s");
  EXPECT_EQ(human_time(7500), "2 h 5 min");
  EXPECT_EQ(human_time(3599.9), "1 h");
  EXPECT_EQ(human_time(90000), "1 d 1 h");
  EXPECT_EQ(human_time(-0.001), "-1 ms");
}

}  // namespace
}  // namespace starling::report

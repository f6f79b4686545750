// Tests bench/gpu*.cpp on a FakeDevice, and the output on a machine without a GPU.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "kernel/fake_device.h"
#include "tool/tool_runner.h"

#ifdef STARLING_BENCHMARKS
#include "bench/gpu.h"
#include "bench/gpu_cases.h"
#include "tool/command.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

/// Runs the command in this process, with a device that its ranks inherit.
std::string run_on_fake_device(std::vector<std::string> words) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>());
  CLI::App app;
  bench::add_bench_gpu(app);
  std::reverse(words.begin(), words.end());
  testing::internal::CaptureStdout();
  app.parse(std::move(words));
  kernel::set_device(nullptr);
  return testing::internal::GetCapturedStdout();
}

// Checks no times: only that every case finishes, with plausible numbers.
TEST(BenchGpuTest, QuickRunsEveryCase) {
  const json bench =
      json::parse(run_on_fake_device({"gpu", "--quick", "--rounds", "3", "--kills", "2", "--json"}));
  EXPECT_EQ(bench.at("gpu"), "fake, fake");
  EXPECT_EQ(bench.at("quick"), true);
  ASSERT_EQ(bench.at("cases").size(), bench::gpu_cases().size());
  for (const json& one : bench.at("cases")) {
    SCOPED_TRACE(one.at("case").get<std::string>());
    ASSERT_EQ(one.at("problem"), nullptr);
    EXPECT_EQ(one.at("met"), nullptr) << "too little data";
    EXPECT_GT(one.at("seconds").get<double>(), 0);
    auto rounds = one.at("rounds").get<std::vector<double>>();
    const bool kills = one.at("case") == "one of four is killed";
    ASSERT_EQ(rounds.size(), kills ? 2U : 3U);
    for (const double round : rounds) EXPECT_TRUE(round > 0 && std::isfinite(round)) << round;
    std::sort(rounds.begin(), rounds.end());
    EXPECT_DOUBLE_EQ(one.at("measured").get<double>(), rounds[1]) << "the median, or the slowest kill";
    if (one.at("case") == "memory that dsgd-awc adds") {
      EXPECT_NEAR(rounds[0], 1, 0.01);
    }
    if (one.at("case") == "host's part of a step, a bucket") {
      EXPECT_LE(one.at("measured"), one.at("seconds")) << "without waits";
    }
  }
}

TEST(BenchGpuTest, PrintsATable) {
  const std::string text = run_on_fake_device({"gpu", "--quick", "--rounds", "1", "--only", "average of 3"});
  EXPECT_THAT(text, StartsWith("fake, fake: 300k float32, medians of 1 interleaved"));
  EXPECT_THAT(text, HasSubstr("\naverage of 3 + momentum"));
  EXPECT_THAT(text, HasSubstr("a copy's rate  at least 93 %"));
  EXPECT_EQ(text.find("average of 1"), std::string::npos);
}

TEST(BenchGpuTest, AFailureIsARow) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>(kernel::FakeDeviceOptions{.memory = 1000}));
  CLI::App app;
  bench::add_bench_gpu(app);
  testing::internal::CaptureStdout();
  app.parse("gpu --quick --rounds 1 --json --only memory", false);
  const json one = json::parse(testing::internal::GetCapturedStdout()).at("cases").at(0);
  kernel::set_device(nullptr);
  EXPECT_EQ(exit_status(), 1);
  exit_status() = 0;
  EXPECT_EQ(one.at("measured"), nullptr);
  EXPECT_THAT(one.at("problem").get<std::string>(), HasSubstr("no device memory for a message"));
}

TEST(BenchGpuTest, CasesHaveNamesAndBars) {
  std::set<std::string> names;
  for (const bench::GpuCase& one : bench::gpu_cases()) {
    names.insert(one.name + std::to_string(one.ranks));
    EXPECT_EQ(one.of.empty(), one.unit == bench::GpuCase::Unit::seconds) << one.name;
    EXPECT_TRUE(one.met(one.bar)) << one.name;
    EXPECT_FALSE(one.met(one.least ? one.bar * 0.99 : one.bar * 1.01)) << one.name;
  }
  EXPECT_EQ(names.size(), bench::gpu_cases().size());
  const ToolRun list = run_tool({"bench", "gpu", "--list"});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("step without computing"));
  EXPECT_THAT(list.out, HasSubstr("at most 1.45x"));
}

TEST(BenchGpuTest, SaysInOneLineWhyThereIsNoGpu) {
  const std::string why = kernel::why_no_device();
  if (why.empty()) GTEST_SKIP() << "there is a GPU";
  const ToolRun run = run_tool({"bench", "gpu"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "starling: no GPU to measure: " + why + "\n");
}

TEST(BenchGpuTest, RefusesInOneLine) {
  for (const std::vector<std::string>& mistake : {std::vector<std::string>{"--rounds", "0"},
                                                  {"--only", "pigeon"},
                                                  {"--quick", "--strict"},
                                                  {"--elements", "7"}}) {
    std::vector<std::string> words = {"bench", "gpu"};
    words.insert(words.end(), mistake.begin(), mistake.end());
    const ToolRun run = run_tool(words);
    EXPECT_EQ(run.status, 2) << mistake[0];
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace starling::tool
#endif

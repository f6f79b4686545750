#include "starling/record/device_times.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "base/eventually.h"
#include "kernel/fake_device.h"
#include "record/folder.h"
#include "starling/base/error.h"
#include "starling/record/ticks.h"
#include "starling/record/timeline_reader.h"
#include "starling/record/trace.h"

namespace starling::record {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A rank with a timeline, whose operations are on the second of two fake devices, and a flag for its stream.
class DeviceTimesTest : public testing::Test {
 protected:
  DeviceTimesTest() {
    kernel::set_device(device_);
    device_->register_flags(&flag_, sizeof flag_);
    const Variable on("STARLING_TIMELINE", folder_.path("t"));
    recorder_.emplace(0, 1);
  }
  ~DeviceTimesTest() override {
    recorder_.reset();
    kernel::set_device(nullptr);
  }

  // An operation whose device work waits until the flag has this number; 0: it waits for nothing.
  void operate(Step step, std::uint32_t number = 0) {
    Trace trace(*recorder_, {name_, number_}, RecordKind::average, {step, step}, MemoryKind::cuda);
    trace.peer(0);
    if (number > 0) {
      const kernel::Device::Moment begun = device_->mark_moment();
      EXPECT_TRUE(eventually([&] { return device_->reached(begun); }));
      device_->wait(flag_, number);
    }
    trace.end(false);
  }
  std::vector<TimelineEvent> events(int device) const {
    std::vector<TimelineEvent> all = read_timeline_part(folder_.path("t.0")).events;
    std::erase_if(all, [&](const TimelineEvent& event) { return event.device != device; });
    return all;
  }
  bool eventually_written(std::size_t count) {
    return eventually([&] {
      recorder_->devices->write_ended();
      return events(1).size() == count;
    });
  }

  const RecordFolder folder_;
  const std::shared_ptr<kernel::FakeDevice> device_ =
      std::make_shared<kernel::FakeDevice>(kernel::FakeDeviceOptions{.devices = 2});
  const kernel::DeviceScope scope_{{1, nullptr}};
  kernel::Flag flag_ = 0;
  const std::string name_ = "mix";
  std::uint32_t number_ = 0;
  std::optional<Recorder> recorder_;
};

constexpr std::int64_t kClockSlack = 1'000'000;  // ns between the clock of ticks and the steady one

TEST_F(DeviceTimesTest, WritesWhenTheDeviceBeganAndEndedOnceItHas) {
  operate(0);
  ASSERT_TRUE(eventually_written(1));
  operate(1, 1);
  const auto returned = static_cast<std::int64_t>(steady_ns());
  operate(2);
  EXPECT_EQ(events(-1).size(), 3U) << "the host's records do not wait";
  EXPECT_EQ(events(1).size(), 1U) << "the device is at the second operation";
  std::this_thread::sleep_for(5ms);
  const auto released = static_cast<std::int64_t>(steady_ns());
  flag_ = 1;
  ASSERT_TRUE(eventually_written(3));
  const auto seen = static_cast<std::int64_t>(steady_ns());
  const std::vector<TimelineEvent> host = events(-1), device = events(1);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(device[k].step, static_cast<Step>(k));
    EXPECT_EQ(device[k].kind, RecordKind::average);
    EXPECT_EQ(device[k].peers, host[k].peers);
    EXPECT_GE(device[k].start, host[k].start - kClockSlack);
    EXPECT_LE(device[k].end, seen + kClockSlack);
  }
  EXPECT_LT(host[1].end, returned + kClockSlack);
  EXPECT_LT(device[1].start, returned + kClockSlack);
  EXPECT_GE(device[1].end, released - kClockSlack);
  EXPECT_GE(device[2].start, device[1].end);
}

TEST_F(DeviceTimesTest, TheEndOfTheRecorderWaitsForTheDevice) {
  operate(0, 1);
  std::thread release([this] {
    std::this_thread::sleep_for(10ms);
    flag_ = 1;
  });
  recorder_.reset();
  release.join();
  EXPECT_EQ(events(1).size(), 1U);
}

TEST_F(DeviceTimesTest, ButNotForADeviceThatIsStuck) {
  operate(0, 1);
  recorder_.reset();
  EXPECT_EQ(events(-1).size(), 1U);
  EXPECT_EQ(events(1).size(), 0U);
  flag_ = 1;
}

TEST_F(DeviceTimesTest, StaysInOrderOverALongTime) {
  for (int k = 0; k < 2; ++k) {
    operate(2 * k);
    ASSERT_TRUE(eventually_written(static_cast<std::size_t>(2 * k + 1)));
    if (k == 0) std::this_thread::sleep_for(1050ms);  // later ones are measured from a newer moment
    operate(2 * k + 1);
    ASSERT_TRUE(eventually_written(static_cast<std::size_t>(2 * k + 2)));
  }
  const std::vector<TimelineEvent> host = events(-1), device = events(1);
  for (std::size_t k = 0; k < device.size(); ++k) {
    EXPECT_GE(device[k].start, host[k].start - kClockSlack);
    EXPECT_LE(device[k].start, host[k].end + 500 * kClockSlack);
  }
}

TEST_F(DeviceTimesTest, LeavesOutWhatIsCapturedIntoAGraph) {
  device_->pretend_capturing(true);
  operate(0);
  {
    Trace trace(*recorder_, {name_, number_}, RecordKind::average, {1, 1}, MemoryKind::cuda);
    device_->pretend_capturing(false);  // began inside
  }
  {
    Trace trace(*recorder_, {name_, number_}, RecordKind::average, {2, 2}, MemoryKind::cuda);
    device_->pretend_capturing(true);  // ends inside
  }
  device_->pretend_capturing(false);
  operate(3);
  ASSERT_TRUE(eventually_written(1));
  EXPECT_EQ(events(1)[0].step, 3);
  EXPECT_EQ(events(-1).size(), 4U);
}

TEST_F(DeviceTimesTest, ADeviceThatFailsEndsTheTimesButNotTheTimeline) {
  std::vector<std::int32_t> integers(4, 1);
  const Buffer wrong(DType::int32, integers.data(), integers.size(), MemoryKind::cuda, nullptr);
  device_->arithmetic().scale(wrong, 0.5);
  EXPECT_THROW(device_->synchronize(), Error);
  testing::internal::CaptureStderr();
  operate(0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the timeline has no more times of devices: an operation on this stream"));
  testing::internal::CaptureStderr();
  operate(1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(events(-1).size(), 2U);
  EXPECT_EQ(events(1).size(), 0U);
}

TEST(DeviceTimesOffTest, WithoutATimelineTheDeviceIsNotAsked) {
  Recorder recorder(0, 1);
  EXPECT_EQ(recorder.devices, nullptr);
  const std::string name = "mix";
  std::uint32_t number = 0;
  const Trace trace(recorder, {name, number}, RecordKind::average, {}, MemoryKind::cuda);  // there is none
}

}  // namespace
}  // namespace starling::record

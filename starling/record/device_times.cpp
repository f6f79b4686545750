#include "starling/record/device_times.h"

#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <thread>

#include "starling/kernel/device.h"
#include "starling/record/log.h"
#include "starling/record/ticks.h"

namespace starling::record {
namespace {

constexpr std::chrono::seconds kPatienceWithDevices{1};
constexpr std::chrono::milliseconds kPauseForDevices{1};
constexpr double kNewAnchorAfter = 1;  // seconds: a device counts longer times less exactly

}  // namespace

DeviceTimes::~DeviceTimes() {
  const auto deadline = std::chrono::steady_clock::now() + kPatienceWithDevices;
  for (write_ended(); !open_.empty() && std::chrono::steady_clock::now() < deadline; write_ended())
    std::this_thread::sleep_for(kPauseForDevices);
}

DeviceTimes::Begin DeviceTimes::begin() {
  const std::lock_guard lock(mutex_);
  Begin begin{kernel::device_context(), nullptr, 0};
  if (stopped_ || begin.context.device >= kTimelineDevices) return begin;
  try {
    kernel::Device& device = kernel::device();
    if (device.capturing()) return begin;
    if (Anchor& anchor = anchors_[begin.context.device]; !anchor.moment) {
      // A stream of its own: the operation's may be waiting for other ranks.
      const kernel::DeviceScope scope({begin.context.device, device.new_stream()});
      const std::uint64_t before = ticks();
      anchor.moment = device.mark_moment();
      device.synchronize();
      anchor.ticks = static_cast<double>(before) + static_cast<double>(ticks() - before) / 2;
    }
    begin.enqueued = ticks();
    begin.moment = device.mark_moment();
  } catch (const std::exception& error) {
    stop(error.what());
  }
  return begin;
}

void DeviceTimes::end(const Begin& begin, const TimelineRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || !begin.moment) return;
    try {
      const kernel::DeviceScope scope(begin.context);
      if (kernel::device().capturing()) return;
      open_.push_back({begin, kernel::device().mark_moment(), record});
    } catch (const std::exception& error) {
      stop(error.what());
    }
  }
  write_ended();
}

void DeviceTimes::write_ended() {
  const std::lock_guard lock(mutex_);
  try {
    for (; !open_.empty() && kernel::device().reached(open_.front().end); open_.pop_front()) write_front();
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

void DeviceTimes::write_front() {
  Range& range = open_.front();
  Anchor& anchor = anchors_.at(range.begin.context.device);
  kernel::Device& device = kernel::device();
  const auto now = static_cast<double>(ticks());
  const double rate = timeline_.tick_rate();
  const double seconds = device.seconds_between(anchor.moment, range.end);
  double end = anchor.ticks + rate * seconds;
  double start = end - rate * device.seconds_between(range.begin.moment, range.end);
  // The clocks drift apart, but nothing begins before it is enqueued, or ends later than now.
  double drift = 0;
  if (start < static_cast<double>(range.begin.enqueued))
    drift = static_cast<double>(range.begin.enqueued) - start;
  else if (end > now)
    drift = now - end;
  anchor.ticks += drift;
  start += drift;
  end += drift;
  if (seconds > kNewAnchorAfter) anchor = {range.end, end};
  range.record.start = static_cast<std::uint64_t>(start);
  range.record.end = static_cast<std::uint64_t>(end);
  range.record.waited = 0;
  range.record.device = static_cast<std::uint8_t>(range.begin.context.device + 1);
  timeline_.write(range.record);
}

void DeviceTimes::stop(const char* why) {
  stopped_ = true;
  open_.clear();
  log(LogLevel::normal, fmt::format("the timeline has no more times of devices: {}", why));
}

}  // namespace starling::record

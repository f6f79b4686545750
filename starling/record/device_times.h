#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "starling/kernel/device_context.h"
#include "starling/record/timeline.h"

namespace starling::record {

/// Writes to a timeline when devices began and ended what operations enqueued. Nobody waits for a device: a
/// record is written with a later operation, once the device has got there. Thread-safe; throws nothing.
class DeviceTimes {
 public:
  explicit DeviceTimes(Timeline& timeline) : timeline_(timeline) {}
  /// Waits a second at most for what is enqueued.
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  /// Where an operation began on a stream.
  struct Begin {
    kernel::DeviceContext context;
    std::shared_ptr<void> moment;  // null: it is not recorded
    std::uint64_t enqueued = 0;    // ticks
  };
  /// Here on the calling thread's stream. Not recorded if the stream is being captured into a graph.
  Begin begin();
  /// The operation ends with the work enqueued on its stream so far. The record's times are replaced.
  void end(const Begin& begin, const TimelineRecord& record);
  /// Writes the records of work that has ended.
  void write_ended();

 private:
  /// A moment of a device and the host's time then.
  struct Anchor {
    std::shared_ptr<void> moment;
    double ticks = 0;
  };
  struct Range {
    Begin begin;
    std::shared_ptr<void> end;
    TimelineRecord record;
  };

  void write_front();
  void stop(const char* why);

  Timeline& timeline_;
  std::mutex mutex_;               // guards the members below
  std::map<int, Anchor> anchors_;  // by device
  std::deque<Range> open_;         // in the order of their ends
  bool stopped_ = false;           // after an error
};

}  // namespace starling::record

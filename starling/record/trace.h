#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "starling/base/buffer.h"
#include "starling/record/device_times.h"
#include "starling/record/flight.h"
#include "starling/record/ticks.h"
#include "starling/record/timeline.h"

namespace starling::record {

/// The recorders of one rank's operations: flight recorder and timeline. Owned by the rank's runtime.
struct Recorder {
  Recorder(Rank rank, Rank size)
      : flight(rank),
        timeline(Timeline::from_environment(rank, size)),
        devices(timeline ? std::make_unique<DeviceTimes>(*timeline) : nullptr) {}

  Flight flight;
  const std::unique_ptr<Timeline> timeline;  // null if off
  const std::unique_ptr<DeviceTimes> devices;
};

/// The name of an operation and, once it is in a timeline, 1 + its number there.
struct RecordName {
  const std::string& text;
  std::uint32_t& number;
};

/// The steps that an operation belongs to.
struct RecordStep {
  Step schedule = 0;            // of its schedule, 0 without one
  Step user = Flight::kNoStep;  // of training if the user's call has one, else of the schedule
};

/// Records one operation: it begins with the constructor and ends with end(), or as failed in the destructor.
/// If it works on device memory, also when the device does so: from the work that the calling thread's stream
/// gets next to what it has got at end_on_device(). Used by one thread, except for wait_ends().
class Trace {
 public:
  Trace(Recorder& recorder, RecordName name, RecordKind kind, RecordStep step,
        MemoryKind memory = MemoryKind::host)
      : recorder_(recorder), flight_number_(recorder.flight.begin(name.text, kind, step.user)) {
    if (!recorder_.timeline) return;
    record_.start = ticks();
    record_.step = step.schedule;
    record_.kind = kind;
    record_.name = number_of(name);
    if (memory != MemoryKind::host) on_device_ = recorder_.devices->begin();
  }
  ~Trace() {
    end(true);
    end_on_device();
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The operation receives from or sends to this rank. Later phases usually involve the same ranks again.
  void peer(Rank rank, bool later_phase = false);
  void bytes(std::size_t count) { record_.bytes += count; }

  /// To be called around a wait; returns 0 if the timeline is off.
  std::uint64_t wait_begins() {
    if (!recorder_.timeline) return 0;
    const std::uint64_t now = ticks();
    if (waited_.load(std::memory_order_relaxed) == 0)
      wait_offset_.store(static_cast<float>(now - record_.start), std::memory_order_relaxed);
    return now;
  }
  void wait_ends(std::uint64_t began) {
    if (began != 0) waited_.fetch_add(ticks() - began, std::memory_order_relaxed);
  }

  void end(bool failed) {
    if (ended_) return;
    ended_ = true;
    recorder_.flight.end(flight_number_, failed);
    if (!recorder_.timeline) return;
    record_.end = ticks();
    record_.waited = waited_.load(std::memory_order_relaxed);
    record_.wait_offset = wait_offset_.load(std::memory_order_relaxed);
    record_.failed = failed ? 1 : 0;
    recorder_.timeline->write(record_);
  }
  void end_on_device() {
    if (on_device_.moment) recorder_.devices->end(std::exchange(on_device_, {}), record_);
  }

 private:
  std::uint16_t number_of(const RecordName& name) const;

  Recorder& recorder_;
  std::uint64_t flight_number_;
  bool ended_ = false;
  TimelineRecord record_;
  DeviceTimes::Begin on_device_;
  std::atomic<std::uint64_t> waited_{0};  // another thread may complete the awaited operation
  std::atomic<float> wait_offset_{0};
};

}  // namespace starling::record

#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "starling/record/flight.h"
#include "starling/record/ticks.h"
#include "starling/record/timeline.h"

namespace starling {

/// What one rank writes down about its operations.
struct Recorder {
  Recorder(Rank rank, Rank size) : flight(rank), timeline(Timeline::from_environment(rank, size)) {}

  Flight flight;
  const std::unique_ptr<Timeline> timeline;  // null: off
};

/// A name and, once a timeline has it, 1 + its number there.
struct RecordName {
  const std::string& text;
  std::uint32_t& number;
};

/// One operation in the records: begins when it is made and ends once, with end() or as failed when it is
/// dropped before.
class Trace {
 public:
  Trace(Recorder& recorder, RecordName name, RecordKind kind, Step step)
      : recorder_(recorder), flight_number_(recorder.flight.begin(name.text, kind, step)) {
    if (!recorder_.timeline) return;
    record_.start = ticks();
    record_.step = step;
    record_.kind = kind;
    record_.name = number_of(name);
  }
  ~Trace() { end(true); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// It hears, or tells, this rank. Later phases usually speak with the same ranks again.
  void peer(Rank rank, bool later_phase = false);
  void bytes(std::size_t count) { record_.bytes += count; }

  /// Around a wait; the beginning is 0 when no timeline is on.
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

 private:
  std::uint16_t number_of(const RecordName& name) const;

  Recorder& recorder_;
  std::uint64_t flight_number_;
  bool ended_ = false;
  TimelineRecord record_;
  std::atomic<std::uint64_t> waited_{0};  // another thread may end what this one waits for
  std::atomic<float> wait_offset_{0};
};

}  // namespace starling

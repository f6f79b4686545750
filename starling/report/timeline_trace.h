#pragma once

#include <ostream>

#include "starling/record/timeline_reader.h"
#include "starling/report/table.h"

namespace starling::report {

/// One event and the line of its rank's row it is drawn on: those that overlap lie on lines of their own.
struct PlacedEvent {
  const TimelinePart* part;
  const TimelineEvent* event;
  int line;
  const std::string& name() const { return part->names[event->name]; }
};

/// All events in the order of their beginning.
std::vector<PlacedEvent> placed_events(const TimelineRun& run);

/// The trace format of Chrome and Perfetto: a row per rank, waiting as a slice inside its operation.
void write_chrome_trace(std::ostream& out, const TimelineRun& run);

/// A line per operation name: how often, how long, how much of it waiting, how fast.
Table timeline_summary(const TimelineRun& run);

/// A picture of the time from the first event on, or of `seconds` in the middle of the run.
std::string timeline_svg(const TimelineRun& run, double seconds = 0);

}  // namespace starling::report

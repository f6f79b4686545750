#pragma once

#include <ostream>

#include "starling/record/timeline_reader.h"
#include "starling/report/table.h"

namespace starling::report {

/// One event and its line in its rank's row: overlapping events are on different lines, and those of devices
/// below those of the host.
struct PlacedEvent {
  const TimelinePart* part;
  const TimelineEvent* event;
  int line;
  int overlap;  // the number of lines above it of the same device, or of the host
  const std::string& name() const { return part->names[event->name]; }
};

/// "GPU 0".
std::string device_name(int device);

/// All events, ordered by their start.
std::vector<PlacedEvent> placed_events(const TimelineRun& run);

/// The trace format of Chrome and Perfetto: a row per rank, waiting as a slice inside its operation, and rows
/// for what devices do.
void write_chrome_trace(std::ostream& out, const TimelineRun& run);

/// One row per operation name: how often it ran, how long, how much of that it waited, how fast it was; what
/// devices did for it has a row of its own.
Table timeline_summary(const TimelineRun& run);

/// A picture of the time from the first event on, or of `seconds` in the middle of the run.
std::string timeline_svg(const TimelineRun& run, double seconds = 0);

}  // namespace starling::report

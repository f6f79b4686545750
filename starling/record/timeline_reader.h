#pragma once

#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/kind.h"

namespace starling {

/// One operation as a timeline tells it; times in nanoseconds of the host's steady clock.
struct TimelineEvent {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t waited = 0;
  std::int64_t wait_start = 0;  // all waits as one, from the first on
  std::uint64_t bytes = 0;
  Step step = 0;
  std::size_t name = 0;  // in the part's names
  RecordKind kind = RecordKind::receive;
  bool failed = false;
  std::uint32_t peer_count = 0;
  std::vector<Rank> peers;  // the first of them
};

/// What one rank wrote.
struct TimelinePart {
  Rank rank = 0;
  Rank size = 0;
  std::int64_t clock_offset = 0;  // wall clock less steady clock
  std::uint64_t overwritten = 0;  // older events that are gone
  std::vector<std::string> names;
  std::vector<TimelineEvent> events;  // in the order in which they ended
};

/// Throws Error, which says what is wrong with the file.
TimelinePart read_timeline_part(const std::string& path);

/// Everything that a flock with STARLING_TIMELINE=file left behind, on one clock.
struct TimelineRun {
  Rank size = 0;
  std::vector<TimelinePart> parts;   // by rank
  std::vector<Rank> missing;         // ranks without a file
  std::vector<std::string> strange;  // files of a run with another number of ranks
};

/// Reads file.0, file.1 and so on; throws Error where there is none.
TimelineRun read_timeline(const std::string& file);

/// The parts of `file` that lie there, whichever run they are of; nothing that is no timeline.
std::vector<std::string> timeline_parts(const std::string& file);

}  // namespace starling

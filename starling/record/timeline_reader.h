#pragma once

#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/kind.h"

namespace starling::record {

/// One operation of a timeline; times are nanoseconds of the host's steady clock.
struct TimelineEvent {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t waited = 0;
  std::int64_t wait_start = 0;  // of all waits as one, from the first
  std::uint64_t bytes = 0;
  Step step = 0;
  std::size_t name = 0;  // index into the part's names
  RecordKind kind = RecordKind::receive;
  bool failed = false;
  int device = -1;  // -1: an operation of the host; else what this device did for it
  std::uint32_t peer_count = 0;
  std::vector<Rank> peers;  // the first ones
};

/// The timeline of one rank.
struct TimelinePart {
  Rank rank = 0;
  Rank size = 0;
  std::int64_t clock_offset = 0;  // wall clock minus steady clock
  std::uint64_t overwritten = 0;  // how many older events were overwritten
  std::uint64_t damaged = 0;      // how many were left out because their content is impossible
  std::vector<std::string> names;
  std::vector<TimelineEvent> events;  // in the order in which they were written
};

/// Reads one rank's file; throws Error that says what is wrong with it.
TimelinePart read_timeline_part(const std::string& path);

/// All timelines of a flock with STARLING_TIMELINE=file, on a common clock.
struct TimelineRun {
  Rank size = 0;
  std::vector<TimelinePart> parts;   // by rank
  std::vector<Rank> missing;         // ranks without a file
  std::vector<std::string> strange;  // files of a run with another number of ranks
};

/// Reads file.0, file.1 and so on; throws Error if there is none.
TimelineRun read_timeline(const std::string& file);

/// The existing parts of `file`, of whichever run; skips files that are not timelines.
std::vector<std::string> timeline_parts(const std::string& file);

}  // namespace starling::record

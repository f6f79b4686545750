#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "starling/base/types.h"
#include "starling/record/timeline_layout.h"

namespace starling::record {

/// Writes one rank's timeline: a memory-mapped file with a ring of records, which stays readable if the
/// process is killed. Thread-safe.
class Timeline {
 public:
  static constexpr std::uint64_t kDefaultRecords = 262'144;
  /// The name of all operations that do not fit into the table of names; long names are truncated.
  static constexpr std::string_view kOtherNames = "(other names)";

  /// Replaces the file at `path`; throws Error with the system's reason.
  Timeline(const std::string& path, Rank rank, Rank size, std::uint64_t records = kDefaultRecords);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// The file of one rank of a flock with STARLING_TIMELINE=file.
  static std::string part(const std::string& file, Rank rank);
  /// Made from STARLING_TIMELINE and STARLING_TIMELINE_EVENTS; null if unset or, as the log says, unwritable.
  static std::unique_ptr<Timeline> from_environment(Rank rank, Rank size);

  /// The number of a name in the table.
  std::uint16_t name(std::string_view text);
  void write(const TimelineRecord& record);
  /// Ticks per second, measured since the start.
  double tick_rate() const;

 private:
  void make_room(std::uint64_t index);
  void note_time(std::uint64_t ticks_now);

  TimelineHeader* header_ = nullptr;
  TimelineName* names_ = nullptr;
  TimelineRecord* ring_ = nullptr;
  int file_ = -1;
  std::size_t bytes_ = 0;
  std::string path_;

  std::atomic_flag busy_;
  std::uint64_t capacity_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t next_ = 0;  // position in the ring
  std::uint64_t room_ = 0;  // records up to here have memory
  bool full_ = false;       // the disk is full
  std::unordered_map<std::string, std::uint16_t> numbers_;
};

}  // namespace starling::record

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "starling/base/types.h"
#include "starling/record/timeline_layout.h"

namespace starling {

/// One rank's timeline: a file in memory, in which the newest records overwrite the oldest. A process that is
/// killed leaves it readable. Thread-safe.
class Timeline {
 public:
  static constexpr std::uint64_t kDefaultRecords = 262'144;
  /// Names beyond the table, and too long ones, share or lose letters.
  static constexpr std::string_view kOtherNames = "(other names)";

  /// Replaces what was at `path`; throws Error with the system's reason.
  Timeline(const std::string& path, Rank rank, Rank size, std::uint64_t records = kDefaultRecords);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// The file that rank r of a flock with STARLING_TIMELINE=file writes.
  static std::string part(const std::string& file, Rank rank);
  /// As STARLING_TIMELINE and STARLING_TIMELINE_EVENTS say; null when they say nothing.
  static std::unique_ptr<Timeline> from_environment(Rank rank, Rank size);

  /// The number of a name in the table.
  std::uint16_t name(std::string_view text);
  void write(const TimelineRecord& record);

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
  std::uint64_t next_ = 0;  // place in the ring
  std::uint64_t room_ = 0;  // records up to here have memory behind them
  bool full_ = false;       // the disk is
  std::unordered_map<std::string, std::uint16_t> numbers_;
};

}  // namespace starling

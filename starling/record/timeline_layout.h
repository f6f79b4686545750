#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "starling/base/floors.h"
#include "starling/record/kind.h"

// The layout of a timeline file: a header, the table of names, a ring of records. Every store leaves the file
// readable, so that nothing needs to be done at the end.

namespace starling::record {

inline constexpr std::uint64_t kTimelineMagic = 0x656D69744C525453u;  // "STRLtime"
inline constexpr std::uint32_t kTimelineVersion = 2;
inline constexpr std::size_t kTimelineNames = 1024;
inline constexpr std::size_t kTimelineNameBytes = 56;
inline constexpr std::size_t kTimelinePeers = 6;

struct TimelineHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t size;
  std::int32_t pid;
  std::uint64_t capacity;  // of the ring, in records
  std::uint64_t wall_ns;   // since 1970, at the start

  /// The same moment on both clocks: at the start, and later ones in alternation.
  struct Moment {
    std::uint64_t ticks;
    std::uint64_t ns;  // steady
  };
  Moment first;
  std::array<Moment, 2> later;
  std::atomic<std::uint32_t> latest;   // which of `later` is valid
  std::atomic<std::uint32_t> names;    // in the table
  std::atomic<std::uint64_t> written;  // total records; the oldest are overwritten
};
static_assert(sizeof(TimelineHeader) <= 128);
inline constexpr std::size_t kTimelineNamesAt = 128;

using TimelineName = std::array<char, kTimelineNameBytes>;  // padded with zeros

struct TimelineRecord {
  std::uint64_t start = 0;  // ticks
  std::uint64_t end = 0;
  std::uint64_t waited = 0;
  std::uint64_t bytes = 0;  // sent and received
  std::int64_t step = 0;
  float wait_offset = 0;  // from the start to the first wait
  std::uint16_t name = 0;
  RecordKind kind = RecordKind::receive;
  std::uint8_t failed = 0;
  std::uint16_t peer_count = 0;
  std::uint8_t device = 0;  // 0: an operation of the host; else what device number `device` - 1 did for it
  std::array<std::uint16_t, kTimelinePeers> peers{};  // the first ones
};
static_assert(sizeof(TimelineRecord) == 64);
inline constexpr int kTimelineDevices = 255;

inline constexpr std::size_t kTimelineRecordsAt = 64 << 10;  // page-aligned
static_assert(kTimelineNamesAt + kTimelineNames * sizeof(TimelineName) <= kTimelineRecordsAt);

}  // namespace starling::record

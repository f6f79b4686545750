#include "starling/record/timeline_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>

#include "starling/base/error.h"
#include "starling/record/timeline_layout.h"

namespace starling::record {
namespace {

constexpr std::int64_t kSameHost = 100'000'000;  // ns by which the clocks of one host may drift apart

constexpr std::int64_t kLongest = std::int64_t{1} << 59;       // ns, 18 years: sums of a few of these fit
constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 53;  // one every ns for a hundred days
constexpr Rank kMostTimelineRanks = 1 << 16;                   // records hold peers in 16 bits

std::int64_t whole_ns(double ns) {
  constexpr auto kMost = static_cast<double>(kLongest);
  return std::isnan(ns) ? 0 : static_cast<std::int64_t>(std::clamp(ns, -kMost, kMost));
}

// The tolerated distances of a record's ticks from the header's clock: a writer may update the clock late,
// and the clocks of processors may differ.
constexpr std::uint64_t kTicksAfter = std::uint64_t{1} << 44;
constexpr std::uint64_t kTicksBefore = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;  // of one operation

// The clocks of the header, without atomics.
struct Head {
  TimelineHeader::Moment first;
  TimelineHeader::Moment last;
  double ns_per_tick = 1;

  // Clamped to kLongest from the start, whatever a damaged file contains.
  std::int64_t ns(std::uint64_t ticks) const {
    const double since = static_cast<double>(static_cast<std::int64_t>(ticks - first.ticks));
    return static_cast<std::int64_t>(first.ns) + whole_ns(since * ns_per_tick);
  }
};

std::string timeline_contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in && errno != 0) throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text;
}

// Whether a writer could have written this record.
bool is_sound(const TimelineRecord& record, const Head& head, std::size_t names, Rank size) {
  const auto kind = static_cast<std::uint8_t>(record.kind);
  const bool known = kind <= static_cast<std::uint8_t>(RecordKind::staged_reduction) ||
                     (kind >= static_cast<std::uint8_t>(RecordKind::put) &&
                      kind <= static_cast<std::uint8_t>(RecordKind::update));
  const auto kept = std::min<std::size_t>(record.peer_count, kTimelinePeers);
  return known && record.start + kTicksBefore >= head.first.ticks && record.start <= record.end &&
         record.end <= head.last.ticks + kTicksAfter && record.bytes <= kMostBytes && record.name < names &&
         record.failed <= 1 &&
         std::all_of(record.peers.begin(), record.peers.begin() + static_cast<std::ptrdiff_t>(kept),
                     [&](std::uint16_t peer) { return peer < size; });
}

TimelineEvent event_of(const TimelineRecord& record, const Head& head, std::size_t names) {
  TimelineEvent event;
  event.start = head.ns(record.start);
  event.end = std::max(event.start, head.ns(record.end));
  const std::int64_t whole = event.end - event.start;
  event.waited =
      std::clamp<std::int64_t>(whole_ns(static_cast<double>(record.waited) * head.ns_per_tick), 0, whole);
  const std::int64_t offset = whole_ns(static_cast<double>(record.wait_offset) * head.ns_per_tick);
  event.wait_start = event.start + std::clamp<std::int64_t>(offset, 0, whole - event.waited);
  event.bytes = record.bytes;
  event.step = record.step;
  event.name = std::min<std::size_t>(record.name, names - 1);
  event.kind = record.kind;
  event.failed = record.failed != 0;
  event.device = record.device - 1;
  event.peer_count = record.peer_count;
  const auto kept = std::min<std::size_t>(record.peer_count, kTimelinePeers);
  event.peers.assign(record.peers.begin(), record.peers.begin() + static_cast<std::ptrdiff_t>(kept));
  return event;
}

// Files named like parts of `file`, by number.
std::map<long, std::string> numbered(const std::string& file) {
  namespace fs = std::filesystem;
  const fs::path whole(file);
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  const std::string stem = whole.filename().string() + ".";
  std::map<long, std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem)) continue;
    const std::string rest = name.substr(stem.size());
    if (rest.empty() || rest.size() > 9 || rest.find_first_not_of("0123456789") != std::string::npos)
      continue;
    found[std::strtol(rest.c_str(), nullptr, 10)] = fmt::format("{}.{}", file, rest);
  }
  return found;
}

}  // namespace

TimelinePart read_timeline_part(const std::string& path) {
  errno = 0;
  const std::string text = timeline_contents(path);
  const auto refuse = [&](const std::string& why) { throw Error(fmt::format("{} {}", path, why)); };
  if (text.size() < sizeof(TimelineHeader)) refuse("is not a Starling timeline file: it is too short");
  const auto& header = *reinterpret_cast<const TimelineHeader*>(text.data());
  if (header.magic != kTimelineMagic) refuse("is not a Starling timeline file");
  if (header.version != kTimelineVersion)
    refuse(fmt::format("is a timeline of version {}; this program reads version {}", header.version,
                       kTimelineVersion));
  const std::size_t room = text.size() < kTimelineRecordsAt ? 0 : text.size() - kTimelineRecordsAt;
  if (header.capacity < 1 || room / sizeof(TimelineRecord) < header.capacity)
    refuse(fmt::format("is truncated: it has {} bytes, too few for {} events", text.size(), header.capacity));
  const std::uint32_t name_count = header.names.load(std::memory_order_relaxed);
  const std::uint64_t written = header.written.load(std::memory_order_relaxed);
  const std::uint32_t latest = header.latest.load(std::memory_order_relaxed);
  if (header.size > kMostTimelineRanks)
    refuse(fmt::format("is a damaged timeline: it claims {} ranks; the maximum is {}", header.size,
                       kMostTimelineRanks));
  constexpr auto kLatest = static_cast<std::uint64_t>(kLongest);
  if (header.rank < 0 || header.rank >= header.size || name_count > kTimelineNames || latest > 1 ||
      (written > 0 && name_count == 0))
    refuse("is a damaged timeline");
  if (written > kMostEvents)
    refuse(
        fmt::format("is a damaged timeline: it claims {} events; the maximum is {}", written, kMostEvents));
  // A host with an uptime of 18 years, or a date in 2116.
  if (header.first.ns > kLatest || header.later[latest].ns > kLatest || header.wall_ns > 8 * kLatest)
    refuse("is a damaged timeline: its clocks are out of range");

  TimelinePart part;
  part.rank = header.rank;
  part.size = header.size;
  Head head{header.first, header.later[latest]};
  if (head.last.ticks > head.first.ticks)
    head.ns_per_tick = static_cast<double>(static_cast<std::int64_t>(head.last.ns - head.first.ns)) /
                       static_cast<double>(head.last.ticks - head.first.ticks);
  part.clock_offset = static_cast<std::int64_t>(header.wall_ns) - static_cast<std::int64_t>(header.first.ns);
  for (std::uint32_t i = 0; i < name_count; ++i) {
    const char* name = text.data() + kTimelineNamesAt + i * sizeof(TimelineName);
    part.names.emplace_back(name, strnlen(name, kTimelineNameBytes));
    if (std::any_of(name + part.names.back().size(), name + kTimelineNameBytes,
                    [](char c) { return c != 0; }))
      refuse(fmt::format("is a damaged timeline: its name {} is not terminated", i));
  }
  // After the ring has wrapped, a killed writer may have been overwriting the oldest record.
  const std::uint64_t kept = written < header.capacity ? written : header.capacity - 1;
  part.overwritten = written - kept;
  part.events.reserve(kept);
  const char* ring = text.data() + kTimelineRecordsAt;
  for (std::uint64_t i = written - kept; i < written; ++i) {
    TimelineRecord record;
    std::memcpy(&record, ring + i % header.capacity * sizeof(record), sizeof(record));
    if (is_sound(record, head, part.names.size(), part.size))
      part.events.push_back(event_of(record, head, part.names.size()));
    else
      ++part.damaged;
  }
  return part;
}

namespace {

// 0 for a file without a header, left by a rank that was killed while it created the file.
std::uint64_t magic_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::uint64_t magic = 0;
  in.read(reinterpret_cast<char*>(&magic), sizeof(magic));
  return in ? magic : 0;
}

}  // namespace

std::vector<std::string> timeline_parts(const std::string& file) {
  std::vector<std::string> paths;
  for (const auto& [number, path] : numbered(file))
    if (magic_of(path) == kTimelineMagic) paths.push_back(path);
  return paths;
}

TimelineRun read_timeline(const std::string& file) {
  TimelineRun run;
  auto files = numbered(file);
  std::erase_if(files, [](const auto& entry) { return magic_of(entry.second) == 0; });
  if (files.empty() && magic_of(file) == kTimelineMagic)
    throw Error(
        fmt::format("{} is the timeline of one rank; give the common name, without the rank's number", file));
  if (files.empty() && std::filesystem::exists(file))
    throw Error(
        fmt::format("{} is not a Starling timeline: ranks with STARLING_TIMELINE={} write {}.0, {}.1 and so "
                    "on, but there are none",
                    file, file, file, file));
  if (files.empty())
    throw Error(fmt::format("there is no {}.0; was the program run with STARLING_TIMELINE={}?", file, file));
  std::int64_t newest = 0;
  for (const auto& [number, path] : files) {
    TimelinePart part = read_timeline_part(path);
    if (part.rank != number) throw Error(fmt::format("{} is the timeline of rank {}", path, part.rank));
    // The newest file determines the number of ranks.
    std::error_code error;
    const auto changed = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    if (run.parts.empty() || changed > newest) {
      newest = changed;
      run.size = part.size;
    }
    run.parts.push_back(std::move(part));
  }
  for (const TimelinePart& part : run.parts)
    if (part.size != run.size) run.strange.push_back(files.at(part.rank));
  std::erase_if(run.parts, [&](const TimelinePart& part) { return part.size != run.size; });
  for (Rank rank = 0, next = 0; rank < run.size; ++rank) {
    if (static_cast<std::size_t>(next) < run.parts.size() &&
        run.parts[static_cast<std::size_t>(next)].rank == rank) {
      ++next;
    } else {
      run.missing.push_back(rank);
    }
  }
  // Ranks of one host share the steady clock; others only have the time of day in common.
  const std::int64_t reference = run.parts.front().clock_offset;
  for (TimelinePart& part : run.parts) {
    const std::int64_t shift = part.clock_offset - reference;
    if (std::abs(shift) < kSameHost) continue;
    for (TimelineEvent& event : part.events)
      for (std::int64_t* time : {&event.start, &event.end, &event.wait_start}) *time += shift;
  }
  return run;
}

}  // namespace starling::record

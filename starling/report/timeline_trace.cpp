#include "starling/report/timeline_trace.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "starling/base/json.h"

namespace starling::report {
namespace {

constexpr JsonWriter::Layout kOneLine = JsonWriter::Layout::one_line;
constexpr int kDigits = 15;  // nanoseconds of a run of several days

void write_name(JsonWriter& json, std::string_view what, Rank rank, int line, const std::string& name) {
  json.begin_object(kOneLine).member("name", what).member("ph", "M").member("pid", rank).member("tid", line);
  json.key("args").begin_object(kOneLine).member("name", name).end_object().end_object();
}

std::string line_name(int device, int overlap) {
  if (device >= 0)
    return overlap == 0 ? device_name(device)
                        : fmt::format("{}, overlapping {}", device_name(device), overlap);
  return overlap == 0 ? "operations" : fmt::format("overlapping {}", overlap);
}

void write_slice(JsonWriter& json, std::string_view name, std::string_view category, const PlacedEvent& at,
                 std::int64_t start, std::int64_t duration) {
  json.begin_object(kOneLine)
      .member("name", name)
      .member("cat", category)
      .member("ph", "X")
      .member("pid", at.part->rank)
      .member("tid", at.line)
      .member("ts", static_cast<double>(start) / 1000)
      .member("dur", static_cast<double>(duration) / 1000);
}

}  // namespace

std::string device_name(int device) {
  return fmt::format("GPU {}", device);
}

std::vector<PlacedEvent> placed_events(const TimelineRun& run) {
  std::vector<PlacedEvent> all;
  for (const TimelinePart& part : run.parts) {
    const std::size_t first = all.size();
    for (const TimelineEvent& event : part.events) all.push_back({&part, &event, 0, 0});
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    std::stable_sort(begin, all.end(), [](const PlacedEvent& a, const PlacedEvent& b) {
      return a.event->start < b.event->start;
    });
    std::map<int, std::vector<std::int64_t>> lines;  // by device: when each line becomes free
    for (auto placed = begin; placed != all.end(); ++placed) {
      std::vector<std::int64_t>& free_from = lines[placed->event->device];
      const auto line = std::find_if(free_from.begin(), free_from.end(),
                                     [&](std::int64_t from) { return from <= placed->event->start; });
      placed->overlap = static_cast<int>(line - free_from.begin());
      if (line == free_from.end()) free_from.push_back(0);
      free_from[static_cast<std::size_t>(placed->overlap)] = placed->event->end;
    }
    std::map<int, int> first_line;
    int next = 0;
    for (const auto& [device, free_from] : lines) {
      first_line[device] = next;
      next += static_cast<int>(free_from.size());
    }
    for (auto placed = begin; placed != all.end(); ++placed)
      placed->line = first_line.at(placed->event->device) + placed->overlap;
  }
  std::stable_sort(all.begin(), all.end(), [](const PlacedEvent& a, const PlacedEvent& b) {
    return a.event->start < b.event->start;
  });
  return all;
}

void write_chrome_trace(std::ostream& out, const TimelineRun& run) {
  const std::vector<PlacedEvent> events = placed_events(run);
  const std::int64_t origin = events.empty() ? 0 : events.front().event->start;
  std::map<Rank, std::map<int, std::string>> lines;
  for (const TimelinePart& part : run.parts) lines[part.rank][0] = line_name(-1, 0);
  for (const PlacedEvent& placed : events)
    lines[placed.part->rank][placed.line] = line_name(placed.event->device, placed.overlap);
  JsonWriter json(out, JsonWriter::Layout::lines, kDigits);
  json.begin_object().member("displayTimeUnit", "ns").key("traceEvents").begin_array();
  for (const TimelinePart& part : run.parts) {
    write_name(json, "process_name", part.rank, 0, fmt::format("rank {}", part.rank));
    json.begin_object(kOneLine)
        .member("name", "process_sort_index")
        .member("ph", "M")
        .member("pid", part.rank);
    json.key("args").begin_object(kOneLine).member("sort_index", part.rank).end_object().end_object();
    for (const auto& [line, name] : lines[part.rank]) write_name(json, "thread_name", part.rank, line, name);
  }
  for (const PlacedEvent& placed : events) {
    const TimelineEvent& event = *placed.event;
    write_slice(json, placed.name(), name(event.kind), placed, event.start - origin, event.end - event.start);
    json.key("args")
        .begin_object(kOneLine)
        .member("step", event.step)
        .member("bytes", event.bytes)
        .member("peers", event.peers)
        .member("peer_count", event.peer_count)
        .member("waited_us", static_cast<double>(event.waited) / 1000)
        .member("error", event.failed)
        .end_object()
        .end_object();
    if (event.waited <= 0) continue;
    write_slice(json, "waiting", "waiting", placed, event.wait_start - origin, event.waited);
    json.end_object();
  }
  json.end_array().end_object();
  out << '\n';
}

Table timeline_summary(const TimelineRun& run) {
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t failed = 0;
    double seconds = 0;
    double waited = 0;
    double bytes = 0;
  };
  std::map<std::pair<std::string, bool>, Sum> sums;  // by name, and whether a device did it
  std::uint64_t overwritten = 0;
  for (const TimelinePart& part : run.parts) {
    overwritten += part.overwritten;
    for (const TimelineEvent& event : part.events) {
      Sum& sum = sums[{part.names[event.name], event.device >= 0}];
      ++sum.count;
      sum.failed += event.failed ? 1 : 0;
      sum.seconds += static_cast<double>(event.end - event.start) * 1e-9;
      sum.waited += static_cast<double>(event.waited) * 1e-9;
      sum.bytes += static_cast<double>(event.bytes);
    }
  }
  std::vector<std::pair<std::pair<std::string, bool>, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  constexpr Align kRight = Align::right;
  Table table({"operation",
               {"count", kRight},
               {"failed", kRight},
               {"total time", kRight},
               {"each", kRight},
               {"waiting", kRight},
               {"bytes", kRight},
               {"bytes/s", kRight}});
  for (const auto& [key, sum] : sorted) {
    const auto& [name, on_device] = key;
    const double share = sum.seconds > 0 ? sum.waited / sum.seconds : 0;
    table.row({on_device ? name + " (GPU)" : name, std::to_string(sum.count), std::to_string(sum.failed),
               human_time(sum.seconds), human_time(sum.seconds / static_cast<double>(sum.count)),
               on_device ? "-" : fmt::format("{:.0f} %", 100 * share), human_bytes(sum.bytes),
               sum.seconds > 0 ? human_bytes(sum.bytes / sum.seconds) : "-"});
  }
  table.footnote(fmt::format("{} of {} ranks; times are sums over ranks; bytes: sent + received",
                             run.parts.size(), run.size));
  if (overwritten > 0)
    table.footnote(
        fmt::format("{} older events were overwritten; STARLING_TIMELINE_EVENTS keeps more", overwritten));
  return table;
}

}  // namespace starling::report

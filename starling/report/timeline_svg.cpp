#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "starling/base/error.h"
#include "starling/report/markup.h"
#include "starling/report/palette.h"
#include "starling/report/timeline_trace.h"

namespace starling::report {
namespace {

constexpr double kLeft = 80;
constexpr double kWidth = 900;
constexpr double kLine = 26;     // height of a line of slices
constexpr double kRankGap = 10;  // between ranks
constexpr double kTop = 46;
constexpr std::size_t kMostSlices = 20'000;

struct Scale {
  std::int64_t begin;
  std::int64_t end;
  double x(std::int64_t time) const {
    const double share =
        static_cast<double>(time - begin) / static_cast<double>(std::max<std::int64_t>(1, end - begin));
    return kLeft + kWidth * std::clamp(share, 0.0, 1.0);
  }
};

std::string rectangle(double x, double y, double width, std::string_view color, double opacity,
                      const std::string& title) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
      "fill-opacity=\"{}\"><title>{}</title>"
      "</rect>\n",
      x, y, std::max(width, 0.4), kLine - 4, color, opacity, escape_markup(title));
}

}  // namespace

std::string timeline_svg(const TimelineRun& run, double seconds) {
  std::vector<PlacedEvent> events = placed_events(run);
  if (events.empty()) throw Error("the timeline has no events to draw");
  Scale scale{events.front().event->start, 0};
  for (const PlacedEvent& placed : events) scale.end = std::max(scale.end, placed.event->end);
  if (seconds > 0) {
    const std::int64_t middle = scale.begin + (scale.end - scale.begin) / 2;
    const auto half = static_cast<std::int64_t>(seconds * 0.5e9);
    scale = {std::max(scale.begin, middle - half), std::min(scale.end, middle + half)};
  }
  std::erase_if(events, [&](const PlacedEvent& placed) {
    return placed.event->end < scale.begin || placed.event->start > scale.end;
  });
  if (events.size() > kMostSlices)
    throw InvalidArgument(
        fmt::format("{} operations do not fit into one picture; draw fewer with --seconds", events.size()));

  std::map<Rank, int> lines;
  std::map<std::string, std::size_t> colors;
  for (const TimelinePart& part : run.parts) lines[part.rank] = 0;
  for (const PlacedEvent& placed : events) {
    lines[placed.part->rank] = std::max(lines[placed.part->rank], placed.line);
    colors.emplace(placed.name(), colors.size());
  }
  const auto color = [&](const std::string& name) {
    return kPalette[colors.at(name) % kPalette.size()].light;
  };
  std::map<Rank, double> tops;
  double bottom = kTop;
  for (const auto& [rank, last] : lines) {
    tops[rank] = bottom;
    bottom += kLine * (last + 1) + kRankGap;
  }

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      kLeft + kWidth + 20, bottom + 30);
  double x = kLeft;
  for (const auto& [name, index] : colors) {
    svg += fmt::format(
        "<rect x=\"{}\" y=\"14\" width=\"14\" height=\"14\" fill=\"{}\"/><text x=\"{}\" y=\"26\">{}</text>\n",
        x, color(name), x + 19, escape_markup(name));
    x += 40 + 7.5 * static_cast<double>(name.size());
  }
  svg += fmt::format("<text x=\"{}\" y=\"26\" fill=\"#555555\">light: waiting</text>\n", x);
  for (const auto& [rank, top] : tops)
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>\n", kLeft - 10, top + 16,
                       rank);
  std::set<std::pair<Rank, int>> labeled;
  for (const PlacedEvent& placed : events) {
    const TimelineEvent& event = *placed.event;
    const double y = tops.at(placed.part->rank) + kLine * placed.line;
    if (event.device >= 0 && placed.overlap == 0 && labeled.emplace(placed.part->rank, event.device).second)
      svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555555\">{}</text>\n",
                         kLeft - 10, y + 16, device_name(event.device));
    const std::string title = fmt::format(
        "{} step {}: {}{}, {}{}", placed.name(), event.step,
        human_time(static_cast<double>(event.end - event.start) * 1e-9),
        event.device >= 0 ? " on " + device_name(event.device)
                          : fmt::format(", {} waiting", human_time(static_cast<double>(event.waited) * 1e-9)),
        human_bytes(static_cast<double>(event.bytes)), event.failed ? ", FAILED" : "");
    const auto draw = [&](std::int64_t from, std::int64_t to, double opacity) {
      if (to > from && to > scale.begin && from < scale.end)
        svg += rectangle(scale.x(from), y, scale.x(to) - scale.x(from),
                         event.failed ? "#cc0000" : color(placed.name()), opacity, title);
    };
    draw(event.start, event.wait_start, 1);
    draw(event.wait_start, event.wait_start + event.waited, 0.3);
    draw(event.wait_start + event.waited, event.end, 1);
  }
  for (int tick = 0; tick <= 4; ++tick) {
    const std::int64_t at = (scale.end - scale.begin) * tick / 4;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{}</text>\n",
                       kLeft + kWidth * tick / 4, bottom + 16,
                       at == 0 ? "0" : human_time(static_cast<double>(at) * 1e-9));
  }
  return svg + "</svg>\n";
}

}  // namespace starling::report

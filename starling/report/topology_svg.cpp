#include "starling/report/topology_svg.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "starling/base/error.h"
#include "starling/base/utf8.h"
#include "starling/report/markup.h"
#include "starling/report/number_text.h"
#include "starling/report/palette.h"
#include "starling/report/topology_panel.h"

namespace starling::report {
namespace {

constexpr double kMargin = 24;
constexpr double kPanelGap = 30;
constexpr double kCaption = 24;
constexpr Rank kMostTooltips = 128;

/// The rules use a class of our own, since on a page they would otherwise affect other pictures. They use
/// plain colors instead of variables, which not every SVG viewer supports.
std::string style_rules(std::size_t groups) {
  std::string light, dark;
  for (std::size_t g = 0; g < std::min(groups, kPalette.size()); ++g) {
    for (auto [rules, color] : {std::pair(&light, kPalette[g].light), std::pair(&dark, kPalette[g].dark)})
      *rules += fmt::format(
          ".topo .hull.g{0}{{fill:{1};stroke:{1}}}.topo .rim.g{0},.topo .node.g{0}{{stroke:{1}}}"
          ".topo .dot.g{0}{{fill:{1}}}\n",
          g, color);
  }
  return fmt::format(R"(<style>
.topo{{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}}
.topo .paper{{fill:#fff}}
.topo .title{{fill:#182033;font-size:17px;font-weight:650}}
.topo .note{{fill:#5d6779;font-size:12px}}
.topo .caption{{fill:#5d6779;font-size:12px;text-anchor:middle}}
.topo .rank{{fill:#182033;text-anchor:middle;pointer-events:none}}
.topo .node{{fill:#fff;stroke:#33508f}}
.topo .dot{{fill:#33508f;stroke:none}}
.topo .idle{{stroke:#b9c1cf;stroke-dasharray:2 2}}
.topo .dot.idle{{fill:#b9c1cf}}
.topo .line{{fill:none;stroke-linecap:round}}
.topo .a .line{{stroke:#3d5a9e}}.topo .a .head{{fill:#3d5a9e}}
.topo .b .line{{stroke:#d55e00}}.topo .b .head{{fill:#d55e00}}
.topo .negative .line{{stroke-dasharray:5 4}}
.topo .hull{{opacity:.14;stroke-linejoin:round;stroke-linecap:round}}
.topo .rim{{fill:none;opacity:.75;stroke-width:1.2;stroke-linejoin:round}}
{}@media (prefers-color-scheme:dark){{
.topo .paper{{fill:#151a23}}
.topo .title{{fill:#e8ecf4}}
.topo .note,.topo .caption{{fill:#9aa5b8}}
.topo .rank{{fill:#e8ecf4}}
.topo .node{{fill:#151a23;stroke:#86a5ee}}
.topo .dot{{fill:#86a5ee}}
.topo .idle{{stroke:#4a5568}}
.topo .dot.idle{{fill:#4a5568}}
.topo .a .line{{stroke:#86a5ee}}.topo .a .head{{fill:#86a5ee}}
.topo .b .line{{stroke:#ff8f4d}}.topo .b .head{{fill:#ff8f4d}}
.topo .hull{{opacity:.2}}
{}}}
</style>
)",
                     light, dark);
}

/// The elements that occur in the panels, for the legend and the line below the title.
struct Contents {
  bool one_way = false;
  bool both_ways = false;
  bool lane_b = false;
  bool negative = false;
  bool idle = false;
  std::size_t groups = 0;
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
};

Contents survey(const std::vector<DrawnRounds>& panels) {
  Contents contents;
  for (const DrawnRounds& panel : panels) {
    contents.groups = std::max(contents.groups, panel.round.groups.size());
    for (const bool idle : panel.round.idle) contents.idle |= idle;
    for (const DrawnEdge& edge : panel.round.edges) {
      (edge.mutual ? contents.both_ways : contents.one_way) = true;
      contents.lane_b |= edge.lane == Lane::b;
      contents.negative |= edge.weight < 0;
      contents.least = std::min(contents.least, edge.weight);
      contents.most = std::max(contents.most, edge.weight);
    }
  }
  return contents;
}

std::string subtitle(const Schedule& schedule, const RoundSelection& rounds, const Contents& contents) {
  std::string text = fmt::format("n = {}", schedule.size());
  const Step shown = rounds.panels.back().last + 1;
  if (schedule.random()) {
    text += fmt::format(" · random, redrawn from step to step: rounds 0 to {}", shown - 1);
  } else if (schedule.period() > 1) {
    text += fmt::format(" · repeats after {} rounds", schedule.period());
    if (!rounds.complete) text += fmt::format(", {} shown", shown);
  } else if (schedule.period() == 0) {
    text += fmt::format(" · never repeats: the first {} rounds", shown);
  }
  if (contents.one_way || contents.both_ways) {
    const bool equal = contents.most - contents.least < 1e-9;
    text += equal ? fmt::format(" · edge weight {}", compact(contents.most, 3))
                  : fmt::format(" · edge weights {} to {}", compact(contents.least, 3),
                                compact(contents.most, 3));
  }
  return text;
}

struct LegendItem {
  std::string sample;  // drawn in a box of width 26 around y = 0
  std::string text;
};

std::vector<LegendItem> legend_items(const Contents& contents) {
  const auto line = [](const char* kind, bool arrow) {
    return fmt::format(R"(<g class="{}"><path class="line" stroke-width="2" d="M0 0H{}"/>{}</g>)", kind,
                       arrow ? 20 : 26, arrow ? R"(<path class="head" d="M26 0L18 -3.5V3.5Z"/>)" : "");
  };
  std::vector<LegendItem> items;
  if (contents.lane_b) {
    items.push_back({line("a", contents.one_way), "sends block a"});
    items.push_back({line("b", contents.one_way), "sends block b"});
  } else if (contents.one_way) {
    items.push_back({line("a", true), "from sender to receiver"});
    if (contents.both_ways) items.push_back({line("a", false), "both ways"});
  }
  if (contents.negative) items.push_back({line("a negative", false), "negative weight"});
  if (contents.groups > 0)
    items.push_back(
        {R"(<path class="hull g0" stroke-width="12" d="M6 0H20"/><path class="rim g0" d="M6 0H20"/>)",
         "mean over the group"});
  if (contents.idle)
    items.push_back({R"(<circle class="node idle" cx="18" cy="0" r="6"/>)", "idle in this round"});
  return items;
}

/// Arranges the items in lines; returns the end of the last line.
double append_legend(std::string& svg, const std::vector<LegendItem>& items, double width, double y) {
  double x = kMargin;
  for (const LegendItem& item : items) {
    const double needed = 34 + 6.6 * static_cast<double>(item.text.size()) + 18;
    if (x > kMargin && x + needed > width - kMargin / 2) {
      x = kMargin;
      y += 20;
    }
    svg += fmt::format(
        R"-(<g transform="translate({:.1f} {:.1f})">{}<text class="note" x="34" y="4">{}</text></g>)-", x, y,
        item.sample, item.text);
    svg += '\n';
    x += needed;
  }
  return items.empty() ? y - 20 : y;
}

std::string caption(const DrawnRounds& panel) {
  return panel.first == panel.last ? fmt::format("round {}", panel.first)
                                   : fmt::format("rounds {} – {}", panel.first, panel.last);
}

int column_count(std::size_t panels) {
  if (panels == 4) return 2;
  if (panels < 4) return static_cast<int>(panels);
  return panels <= 6 || panels == 9 ? 3 : 4;
}

}  // namespace

std::string topology_svg(const Schedule& schedule, const TopologySvgOptions& options) {
  const Rank n = schedule.size();
  if (n > options.max_n)
    throw InvalidArgument(fmt::format("cannot draw {} ranks; the limit is {}", n, options.max_n));
  if (options.max_rounds < 1)
    throw InvalidArgument(fmt::format("a picture needs at least one round, not {}", options.max_rounds));

  const RoundSelection rounds = select_rounds(schedule, options.max_rounds);
  const Contents contents = survey(rounds.panels);
  const bool single = rounds.panels.size() == 1;
  const std::vector<TopologyLayout> layouts = layout_topology(schedule.name(), n, rounds.panels);
  PanelStyle style = fit_panels(layouts);
  style.heaviest = std::max(std::abs(contents.least), std::abs(contents.most));
  style.labels = n <= options.max_labels;
  style.tooltips = n <= kMostTooltips;

  const int columns = column_count(rounds.panels.size());
  const int rows = (static_cast<int>(rounds.panels.size()) + columns - 1) / columns;
  const double panel_width = style.side + 2 * style.rim;
  const double panel_height = style.height + 2 * style.rim + (single ? 0 : kCaption);
  const double panels_width = columns * panel_width + (columns - 1) * kPanelGap;
  const double width = std::max(panels_width + 2 * kMargin, 420.0);

  std::string body;
  const double legend_end = append_legend(body, legend_items(contents), width, 74);
  const double top = legend_end + 26;
  for (std::size_t p = 0; p < rounds.panels.size(); ++p) {
    const int row = static_cast<int>(p) / columns;
    const int column = static_cast<int>(p) % columns;
    const double left = (width - panels_width) / 2 + column * (panel_width + kPanelGap);
    const double above = top + row * (panel_height + kPanelGap / 2) + (single ? 0 : kCaption);
    const Point center = {left + panel_width / 2, above + style.rim + style.height / 2};
    body += "<g class=\"panel\">\n";
    if (!single)
      body += fmt::format("<text class=\"caption\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", center.x,
                          above - 6, caption(rounds.panels[p]));
    append_panel(body, rounds.panels[p].round, layouts[p], style, center);
    body += "</g>\n";
  }
  const double height = top + rows * panel_height + (rows - 1) * kPanelGap / 2 + kMargin;

  const std::string title = options.title.empty() ? schedule.name() : options.title;
  const auto fitting = static_cast<std::size_t>((width - 2 * kMargin) / 9.6);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"topo\" role=\"img\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<title>{2}, n = {3}</title>\n",
      width, height, escape_markup(title), n);
  svg += style_rules(contents.groups);
  svg += fmt::format("<rect class=\"paper\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
  svg += fmt::format(
      "<text class=\"title\" x=\"{0:.0f}\" y=\"34\">{1}</text>\n<text class=\"note\" x=\"{0:.0f}\" "
      "y=\"54\">{2}</text>\n",
      kMargin, escape_markup(utf8_shortened(title, fitting)), subtitle(schedule, rounds, contents));
  return svg + body + "</svg>\n";
}

}  // namespace starling::report

#include "starling/report/topology_panel.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <tuple>

#include "starling/report/number_text.h"
#include "starling/report/palette.h"

namespace starling::report {
namespace {

constexpr int kWidthLevels = 6;

Point operator+(Point a, Point b) {
  return {a.x + b.x, a.y + b.y};
}
Point operator-(Point a, Point b) {
  return {a.x - b.x, a.y - b.y};
}
Point operator*(double s, Point a) {
  return {s * a.x, s * a.y};
}

Point unit(Point a) {
  const double length = std::hypot(a.x, a.y);
  return length > 0 ? (1 / length) * a : Point{1, 0};
}

/// The area of a hull with an outline of this thickness.
double area(const std::vector<Point>& hull, double thickness) {
  double inside = 0;
  double around = 0;
  for (std::size_t i = 0; i < hull.size(); ++i) {
    const Point a = hull[i];
    const Point b = hull[(i + 1) % hull.size()];
    inside += (a.x * b.y - b.x * a.y) / 2;
    around += std::hypot(b.x - a.x, b.y - a.y);
  }
  return std::abs(inside) + around * thickness / 2;
}

/// The edges that look alike, as one path, which keeps dense pictures small.
struct Strokes {
  std::string lines;
  std::string heads;
};

class PanelDrawing {
 public:
  PanelDrawing(std::string& svg, const DrawnRound& round, const TopologyLayout& layout,
               const PanelStyle& style, Point center)
      : svg_(svg), round_(round), layout_(layout), style_(style), center_(center) {}

  void draw() {
    draw_groups();
    draw_edges();
    draw_nodes();
  }

 private:
  template <typename... Arguments>
  void put(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(svg_), text, std::forward<Arguments>(arguments)...);
  }

  Point place(Rank rank) const {
    return center_ + (style_.side / 2) * layout_.at[static_cast<std::size_t>(rank)];
  }

  /// Draws each group as a hull with a thick round outline, which needs no computation of offsets.
  void draw_groups() {
    if (round_.groups.empty()) return;
    const double thickness = 2 * style_.node_radius + 7;
    std::vector<std::vector<Point>> hulls;
    double covered = 0;
    for (const std::vector<Rank>& group : round_.groups) {
      std::vector<Point> members(group.size());
      std::transform(group.begin(), group.end(), members.begin(), [&](Rank rank) { return place(rank); });
      hulls.push_back(convex_hull(std::move(members)));
      covered += area(hulls.back(), thickness);
    }
    // Overlapping hulls must let the lower ones show through.
    const double panel = style_.side * style_.side * layout_.height;
    std::string rims;
    put("<g opacity=\"{:.2f}\">\n", std::clamp(1.2 * panel / std::max(covered, 1.0) - 0.15, 0.15, 1.0));
    for (std::size_t g = 0; g < hulls.size(); ++g) {
      std::string path;
      for (const Point corner : hulls[g])
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", corner.x, corner.y);
      const std::size_t color = g % kPalette.size();
      put("<path class=\"hull g{}\" stroke-width=\"{:.1f}\" d=\"{}Z\"/>\n", color, thickness, path);
      rims += fmt::format("<path class=\"rim g{}\" d=\"{}Z\"/>\n", color, path);
    }
    put("</g>\n{}", rims);
  }

  void draw_edges() {
    if (round_.edges.empty()) return;
    std::map<std::tuple<Lane, bool, int>, Strokes> strokes;
    for (const DrawnEdge& edge : round_.edges) {
      const double share = style_.heaviest > 0 ? std::abs(edge.weight) / style_.heaviest : 1;
      const int level = std::clamp(static_cast<int>(std::lround(share * kWidthLevels)), 1, kWidthLevels);
      add_edge(edge, strokes[{edge.lane, edge.weight < 0, level}]);
    }
    const double crowd = static_cast<double>(round_.edges.size()) / static_cast<double>(layout_.at.size());
    const double thickest = std::clamp(0.26 * style_.node_radius, 0.7, 2.2) / std::clamp(crowd / 3, 1.0, 8.0);
    for (const auto& [key, stroke] : strokes) {
      const auto& [lane, negative, level] = key;
      const double share = double(level) / kWidthLevels;
      const double opacity = (0.3 + 0.6 * share) / std::clamp(std::sqrt(crowd / 8), 1.0, 5.0);
      put("<g class=\"edges {}{}\" opacity=\"{:.2f}\"><path class=\"line\" stroke-width=\"{:.2f}\" "
          "d=\"{}\"/>",
          lane == Lane::b ? "b" : "a", negative ? " negative" : "", opacity, thickest * (0.45 + 0.55 * share),
          stroke.lines);
      if (!stroke.heads.empty()) put("<path class=\"head\" d=\"{}\"/>", stroke.heads);
      put("</g>\n");
    }
  }

  void add_edge(const DrawnEdge& edge, Strokes& strokes) const {
    const Point from = place(edge.sender);
    const Point to = place(edge.receiver);
    const Point along = to - from;
    const double cell = layout_.nearest * style_.side / 2;
    const bool track = layout_.kind == LayoutKind::grid && std::hypot(along.x, along.y) > 1.5 * cell;
    Point first = from + 0.5 * along + bow(edge, along);  // the point that the edge heads for when it leaves
    Point last = first;                                   // the point that it comes from when it arrives
    Point rise;
    if (track) {
      rise = track_rise(along, cell);
      first = from + (0.25 * cell) * unit(along) + rise;
      last = to - (0.25 * cell) * unit(along) + rise;
    }

    const double head = edge.mutual ? 0 : std::clamp(0.7 * style_.node_radius, 2.6, 8.0);
    const Point arriving = unit(to - last);
    const Point start = from + style_.node_radius * unit(first - from);
    const Point tip = to - style_.node_radius * arriving;
    const Point end = tip - (0.8 * head) * arriving;
    auto line = std::back_inserter(strokes.lines);
    const Point bent = first - from - 0.5 * along;
    const bool straight =
        !track && std::hypot(bent.x, bent.y) < 0.05;  // a straight path is shorter, and there may be many
    fmt::format_to(line, "M{:.1f} {:.1f}", start.x, start.y);
    if (straight) {
      fmt::format_to(line, "L");
    } else {
      fmt::format_to(line, "Q{:.1f} {:.1f} ", first.x, first.y);
    }
    if (track) {
      const Point up = from + (0.6 * cell) * unit(along) + rise;
      const Point down = to - (0.6 * cell) * unit(along) + rise;
      fmt::format_to(line, "{:.1f} {:.1f}L{:.1f} {:.1f}Q{:.1f} {:.1f} ", up.x, up.y, down.x, down.y, last.x,
                     last.y);
    }
    fmt::format_to(line, "{:.1f} {:.1f}", end.x, end.y);
    if (edge.mutual) return;
    const Point side = (0.42 * head) * Point{-arriving.y, arriving.x};
    const Point back = tip - head * arriving;
    fmt::format_to(std::back_inserter(strokes.heads), "M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z", tip.x,
                   tip.y, back.x + side.x, back.y + side.y, back.x - side.x, back.y - side.y);
  }

  /// A wrap-around edge of a torus runs beside the ranks in between, always on the same side of a row or
  /// column.
  static Point track_rise(Point along, double cell) {
    const Point normal = unit({-along.y, along.x});
    return (normal.x + normal.y > 0 ? -kGridBow * cell : kGridBow * cell) * normal;
  }

  /// The distance of the control point from the straight line, so that no edge is hidden behind a rank or
  /// another edge.
  Point bow(const DrawnEdge& edge, Point along) const {
    const Point sideways = {-along.y, along.x};
    const double lane_share = edge.lane == Lane::b ? 0.12 : 0.0;
    if (layout_.kind != LayoutKind::circle) return ((edge.mutual ? 0.0 : 0.1) + lane_share) * sideways;
    // A short chord would pass behind the ranks between its ends, so its middle is pulled inwards.
    const double length = std::hypot(along.x, along.y);
    const double cell = layout_.nearest * style_.side / 2;
    const double radius = style_.side / 2;
    const double sag = radius - std::sqrt(std::max(0.0, radius * radius - length * length / 4));
    const double inwards = length > 1.2 * cell ? std::max(0.0, 2.6 * style_.node_radius - sag / 2) : 0.0;
    const Point middle = place(edge.sender) + 0.5 * along;
    return (2 * inwards) * unit(center_ - middle) + lane_share * sideways;
  }

  void draw_nodes() {
    const std::vector<std::string> notes = style_.tooltips ? tooltips() : std::vector<std::string>();
    put("<g class=\"nodes\" stroke-width=\"{:.1f}\">\n", std::clamp(0.16 * style_.node_radius, 0.5, 1.8));
    for (std::size_t i = 0; i < layout_.at.size(); ++i) {
      const Point at = place(static_cast<Rank>(i));
      const int group = round_.group_of[i];
      std::string kind = style_.labels ? "node" : "node dot";
      if (group >= 0) kind += fmt::format(" g{}", static_cast<std::size_t>(group) % kPalette.size());
      if (round_.idle[i]) kind += " idle";
      const auto circle = fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"", kind,
                                      at.x, at.y, style_.node_radius);
      if (notes.empty()) {
        put("{}/>", circle);
      } else {
        put("{}><title>{}</title></circle>", circle, notes[i]);
      }
      if (style_.labels)
        put("<text class=\"rank\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\">{}</text>", at.x,
            at.y + 0.36 * label_size(), label_size(), i);
      put("\n");
    }
    put("</g>\n");
  }

  double label_size() const { return std::min(1.1 * style_.node_radius, 13.0); }

  std::vector<std::string> tooltips() const {
    std::vector<std::string> sources(layout_.at.size());
    const auto add = [&](Rank receiver, Rank sender, double weight) {
      std::string& text = sources[static_cast<std::size_t>(receiver)];
      text += fmt::format("{}{} ({})", text.empty() ? " receives from " : ", ", sender, compact(weight, 3));
    };
    for (const DrawnEdge& edge : round_.edges) {
      add(edge.receiver, edge.sender, edge.weight);
      if (edge.mutual) add(edge.sender, edge.receiver, edge.weight);
    }
    std::vector<std::string> notes;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      std::string note = fmt::format("rank {}", i);
      const int group = round_.group_of[i];
      if (group >= 0)
        note += fmt::format(", mean over {} ranks", round_.groups[static_cast<std::size_t>(group)].size());
      note += sources[i];
      if (round_.idle[i]) note += " is idle";
      notes.push_back(std::move(note));
    }
    return notes;
  }

  std::string& svg_;
  const DrawnRound& round_;
  const TopologyLayout& layout_;
  const PanelStyle& style_;
  const Point center_;
};

}  // namespace

PanelStyle fit_panels(const std::vector<TopologyLayout>& layouts) {
  const bool single = layouts.size() == 1;
  const auto n = static_cast<double>(layouts.front().at.size());
  double nearest = 2;
  PanelStyle style;
  bool layered = false;
  for (const TopologyLayout& layout : layouts) {
    nearest = std::min(nearest, layout.nearest);
    style.height = std::max(style.height, layout.height);
    style.rim = std::max(style.rim, layout.overhang);
    layered = layered || layout.kind == LayoutKind::layered_tree;
  }
  style.side = single ? std::clamp(300 + 5 * n, 320.0, 680.0) : std::clamp(130 + 4 * n, 150.0, 330.0);
  if (layered) style.side *= single ? 1.15 : 1.6;
  const double share = layouts.front().kind == LayoutKind::grid ? 0.21 : 0.34;  // leaves room for tracks
  style.node_radius = std::clamp(share * nearest * style.side / 2, 1.3, single ? 15.0 : 12.0);
  style.height *= style.side;
  style.rim = style.rim * style.side / 2 + style.node_radius + 8;
  return style;
}

void append_panel(std::string& svg, const DrawnRound& round, const TopologyLayout& layout,
                  const PanelStyle& style, Point center) {
  PanelDrawing(svg, round, layout, style, center).draw();
}

}  // namespace starling::report

#include "starling/report/topology_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/report/tree_layout.h"

namespace starling::report {
namespace {

constexpr Rank kMostElongated = 10;

/// Rank 0 is at the top; the others follow clockwise.
Point on_circle(double turn, double radius) {
  const double angle = 2 * std::numbers::pi * turn - std::numbers::pi / 2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

TopologyLayout circle(Rank n) {
  TopologyLayout layout;
  if (n <= 2) {
    layout.height = 0.2;
    layout.at = n == 1 ? std::vector<Point>{{0, 0}} : std::vector<Point>{{-0.6, 0}, {0.6, 0}};
    return layout;
  }
  for (Rank i = 0; i < n; ++i) layout.at.push_back(on_circle(double(i) / n, 1));
  return layout;
}

/// Each machine's ranks on a small circle, the machines on a large one.
TopologyLayout machines(Rank n, Rank local) {
  TopologyLayout layout;
  layout.kind = LayoutKind::machines;
  const Rank count = n / local;
  const double gap = std::sin(std::numbers::pi / count);  // half the distance between neighbors, at radius 1
  const double inner = std::min(0.72 * gap / (1 + gap), 0.42);
  for (Rank i = 0; i < n; ++i) {
    const Rank machine = i / local;
    const double turn = double(machine) / count;
    const Point center = on_circle(turn, 1 - inner);
    const Point offset = on_circle(turn + double(i % local) / local, inner);
    layout.at.push_back({center.x + offset.x, center.y + offset.y});
  }
  return layout;
}

TopologyLayout grid(Rank n, Rank rows, bool wraps) {
  TopologyLayout layout;
  layout.kind = LayoutKind::grid;
  const Rank columns = n / rows;
  const double cell = 2.0 / std::max(1, std::max(columns, rows) - 1);
  layout.height = std::max(cell * (rows - 1) / 2, 0.2);
  if (wraps && n > 1) layout.overhang = kGridBow * cell;
  for (Rank row = 0; row < rows; ++row)
    for (Rank column = 0; column < columns; ++column)
      layout.at.push_back({cell * (column - (columns - 1) / 2.0), cell * (row - (rows - 1) / 2.0)});
  return layout;
}

/// The argument with this key or at this position, if it is a number.
std::optional<Rank> number_argument(const Spec& spec, const std::string& key, std::size_t position) {
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    const Spec::Argument& argument = spec.arguments[i];
    if (argument.key.empty() ? i != position : argument.key != key) continue;
    const std::string& word = argument.value.word;
    Rank value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size()) return value;
  }
  return std::nullopt;
}

Rank squarest_rows(Rank n) {
  Rank rows = 1;
  for (Rank r = 1; r <= n / r; ++r)
    if (n % r == 0) rows = r;
  return rows;
}

std::optional<TopologyLayout> layout_by_name(const Spec& spec, Rank n) {
  const auto divides = [n](std::optional<Rank> number) { return number && *number >= 1 && n % *number == 0; };
  if (spec.word == "grid" || spec.word == "torus") {
    const std::optional<Rank> asked = number_argument(spec, "rows", 0);
    const Rank rows = divides(asked) ? *asked : squarest_rows(n);
    const Rank columns = n / rows;
    if (std::min(rows, columns) == 1 || std::max(rows, columns) > kMostElongated * std::min(rows, columns))
      return std::nullopt;  // nearly a line: a circle shows more
    return grid(n, rows, /*wraps=*/spec.word == "torus");
  }
  if (spec.word == "aer" || spec.word == "hierarchical" || spec.word.starts_with("inner-outer")) {
    const std::optional<Rank> local = number_argument(spec, "local", spec.word == "hierarchical" ? 1 : 0);
    if (divides(local) && *local > 1 && *local < n) return machines(n, *local);
  }
  return std::nullopt;
}

/// The root that the spec names.
std::optional<Rank> root_of(const Spec& spec, Rank n) {
  std::optional<Rank> root;
  if (spec.word == "bfs-tree") root = number_argument(spec, "root", 1);
  if (spec.word == "star") root = number_argument(spec, "center", 0);
  return root && *root >= 0 && *root < n ? root : std::nullopt;
}

std::vector<TopologyLayout> layout_trees(Rank n, const std::vector<DrawnRounds>& panels,
                                         std::optional<Rank> root) {
  std::vector<TopologyLayout> layouts;
  for (const DrawnRounds& panel : panels) {
    std::optional<TopologyLayout> tree = layout_tree(n, panel.round, root);
    if (!tree) return {};
    layouts.push_back(*std::move(tree));
  }
  return layouts;
}

double nearest_distance(const std::vector<Point>& at) {
  double nearest = 2;
  for (std::size_t i = 0; i < at.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      nearest = std::min(nearest, std::hypot(at[i].x - at[j].x, at[i].y - at[j].y));
  return nearest;
}

}  // namespace

std::vector<TopologyLayout> layout_topology(const std::string& name, Rank n,
                                            const std::vector<DrawnRounds>& panels) {
  Spec spec;
  try {
    spec = parse_spec(name);
  } catch (const InvalidArgument&) {
    spec.word = name;  // a program's own schedule may have any name
  }
  std::optional<TopologyLayout> shared = layout_by_name(spec, n);
  std::vector<TopologyLayout> layouts;
  if (!shared) layouts = layout_trees(n, panels, root_of(spec, n));
  if (layouts.empty()) layouts.assign(panels.size(), shared ? *std::move(shared) : circle(n));
  for (TopologyLayout& layout : layouts) layout.nearest = nearest_distance(layout.at);
  return layouts;
}

std::vector<Point> convex_hull(std::vector<Point> points) {
  if (points.size() < 3) return points;
  std::sort(points.begin(), points.end(),
            [](Point l, Point r) { return l.x != r.x ? l.x < r.x : l.y < r.y; });
  const auto turns_right = [](Point a, Point b, Point c) {
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x) <= 1e-9;
  };
  std::vector<Point> hull;
  // The lower side from left to right, then the upper side from right to left.
  for (int side = 0; side < 2; ++side) {
    const std::size_t start = hull.size();
    for (const Point point : points) {
      while (hull.size() >= start + 2 && turns_right(hull[hull.size() - 2], hull.back(), point))
        hull.pop_back();
      hull.push_back(point);
    }
    hull.pop_back();
    std::reverse(points.begin(), points.end());
  }
  return hull;
}

}  // namespace starling::report

#pragma once

#include <string>
#include <vector>

#include "starling/report/topology_round.h"

namespace starling::report {

struct Point {
  double x = 0;
  double y = 0;
};

enum class LayoutKind { circle, machines, grid, layered_tree, radial_tree };

/// The positions of the ranks, in a box from -1 to 1 across and from -height to height down.
struct TopologyLayout {
  LayoutKind kind = LayoutKind::circle;
  double height = 1;
  std::vector<Point> at;
  double overhang = 0;  // how far edges extend beyond the box
  double nearest = 2;   // the smallest distance between two ranks
};

/// The distance of a torus's wrap-around edges from the ranks beside them, as a fraction of the distance
/// between neighbors.
inline constexpr double kGridBow = 0.32;

/// One layout per panel: as trees if every round is a tree, otherwise the same for all panels: grids and tori
/// as grids, machines as clusters, everything else on a circle. `name` is the schedule's spec.
std::vector<TopologyLayout> layout_topology(const std::string& name, Rank n,
                                            const std::vector<DrawnRounds>& panels);

/// The corners of the convex hull, in order.
std::vector<Point> convex_hull(std::vector<Point> points);

}  // namespace starling::report

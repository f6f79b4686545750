#include "starling/report/topology_layout.h"

#include <cmath>
#include <gtest/gtest.h>

#include "report/toy_schedule.h"

namespace starling::report {
namespace {

TopologyLayout layout_of(const ToySchedule& schedule) {
  return layout_topology(schedule.name(), schedule.size(), select_rounds(schedule, 1).panels).front();
}

void expect_inside_and_apart(const TopologyLayout& layout, Rank n) {
  ASSERT_EQ(layout.at.size(), static_cast<std::size_t>(n));
  EXPECT_GT(layout.nearest, 0.001);
  for (const Point point : layout.at) {
    EXPECT_LE(std::abs(point.x), 1 + 1e-9);
    EXPECT_LE(std::abs(point.y), layout.height + 1e-9);
  }
}

TEST(TopologyLayout, ChoosesByShapeAndName) {
  const struct {
    const char* name;
    Rank n;
    ToySchedule::Fill fill;
    LayoutKind kind;
  } cases[] = {
      {"ring", 16, toy_ring(16), LayoutKind::circle},
      {"binary-tree", 31, toy_tree(31), LayoutKind::layered_tree},
      {"binary-tree", 200, toy_tree(200), LayoutKind::radial_tree},
      {"torus(rows=4)", 24, toy_ring(24), LayoutKind::grid},
      {"grid", 24, toy_ring(24), LayoutKind::grid},
      {"grid(rows=5)", 24, toy_ring(24), LayoutKind::grid},
      {"aer(local=4)", 24, toy_ring(24), LayoutKind::machines},
      {"hierarchical(ring,4)", 24, toy_ring(24), LayoutKind::machines},
      {"not ( a spec", 9, toy_ring(9), LayoutKind::circle},
      {"ring", 1, [](Step, Rank, Exchange&) {}, LayoutKind::circle},
      {"torus", 1, [](Step, Rank, Exchange&) {}, LayoutKind::circle},
      {"grid", 7, toy_ring(7), LayoutKind::circle},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const TopologyLayout layout = layout_of(ToySchedule(one.name, one.n, 1, one.fill));
    EXPECT_EQ(layout.kind, one.kind);
    expect_inside_and_apart(layout, one.n);
  }
}

TEST(TopologyLayout, CirclesAreEven) {
  const TopologyLayout layout = layout_of(ToySchedule("ring", 16, 1, toy_ring(16)));
  for (std::size_t i = 0; i < 16; ++i) {
    const Point here = layout.at[i];
    const Point next = layout.at[(i + 1) % 16];
    EXPECT_NEAR(std::hypot(here.x, here.y), 1, 1e-12);
    EXPECT_NEAR(std::hypot(next.x - here.x, next.y - here.y), layout.nearest, 1e-12);
  }
}

TEST(TopologyLayout, TreesHangFromTheirRoot) {
  const TopologyLayout layout = layout_of(ToySchedule("t", 31, 1, toy_tree(31)));
  for (Rank w = 1; w < 31; ++w)
    EXPECT_LT(layout.at[static_cast<std::size_t>(w / 2)].y, layout.at[static_cast<std::size_t>(w)].y) << w;
}

TEST(TopologyLayout, NamesMayAskForARoot) {
  const auto star = [](Step, Rank rank, Exchange& out) {
    if (rank != 3) return out.add_pair(3, 0.1);
    for (Rank other = 0; other < 9; ++other)
      if (other != 3) out.add_pair(other, 0.1);
  };
  const TopologyLayout around = layout_of(ToySchedule("star(center=3)", 9, 1, star));
  EXPECT_EQ(around.kind, LayoutKind::radial_tree);
  EXPECT_EQ(around.at[3].x, 0);
  EXPECT_EQ(around.at[3].y, 0);
  const TopologyLayout below = layout_of(ToySchedule("bfs-tree(of=torus,root=2)", 15, 1, toy_tree(15)));
  for (std::size_t i = 0; i < 15; ++i) EXPECT_GE(below.at[i].y, below.at[2].y);
}

TEST(TopologyLayout, EveryRoundATreeOrAllOnOneCircle) {
  const auto mirrored = [](Step step, Rank rank, Exchange& out) {
    toy_tree(15)(0, step % 2 == 0 ? rank : 14 - rank, out);
    if (step % 2 == 0) return;
    for (Source& source : out.sources) source.rank = 14 - source.rank;
    for (Destination& destination : out.destinations) destination.rank = 14 - destination.rank;
  };
  const auto pair = layout_topology("t", 15, select_rounds(ToySchedule("t", 15, 2, mirrored), 12).panels);
  ASSERT_EQ(pair.size(), 2U);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_DOUBLE_EQ(pair[0].at[i].y, pair[1].at[14 - i].y);

  const auto mixed = [](Step step, Rank rank, Exchange& out) {
    (step == 0 ? toy_tree(15) : toy_ring(15))(0, rank, out);
  };
  const auto circles = layout_topology("t", 15, select_rounds(ToySchedule("t", 15, 2, mixed), 12).panels);
  ASSERT_EQ(circles.size(), 2U);
  EXPECT_EQ(circles[0].kind, LayoutKind::circle);
  EXPECT_EQ(circles[0].at[7].x, circles[1].at[7].x);
}

TEST(TopologyLayout, OneWayOrBrokenGraphsAreNoTrees) {
  const auto one_way = [](Step, Rank rank, Exchange& out) {
    if (rank > 0) out.add_source(rank / 2, 0.5);
  };
  EXPECT_EQ(layout_of(ToySchedule("t", 15, 1, one_way)).kind, LayoutKind::circle);
  // Seven edges on eight ranks, but a cycle and an isolated rank.
  const auto broken = [](Step, Rank rank, Exchange& out) {
    if (rank < 7) toy_ring(7)(0, rank, out);
  };
  EXPECT_EQ(layout_of(ToySchedule("t", 8, 1, broken)).kind, LayoutKind::circle);
}

TEST(ConvexHull, KeepsTheCorners) {
  EXPECT_EQ(convex_hull({{0, 0}, {2, 0}, {1, 1}, {2, 2}, {0, 2}, {1, 0}}).size(), 4U);
  EXPECT_EQ(convex_hull({{0, 0}, {1, 1}}).size(), 2U);
  EXPECT_EQ(convex_hull({{0, 0}, {1, 1}, {2, 2}}).size(), 2U);
}

}  // namespace
}  // namespace starling::report

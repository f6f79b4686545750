#include "starling/topology/edge_coloring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include "starling/base/random.h"
#include "starling/topology/registry.h"

namespace starling::topology {
namespace {

using EdgeSet = std::set<std::pair<Rank, Rank>>;

EdgeSet edge_set_of(const Graph& graph) {
  EdgeSet edges;
  std::vector<Rank> neighbors;
  for (Rank u = 0; u < graph.size(); ++u) {
    neighbors.clear();
    graph.append_out(u, neighbors);
    for (const Rank v : neighbors) edges.emplace(std::min(u, v), std::max(u, v));
  }
  return edges;
}

Rank degree_of(const Graph& graph) {
  Rank degree = 0;
  for (Rank u = 0; u < graph.size(); ++u) degree = std::max(degree, graph.out_degree(u));
  return degree;
}

/// Returns the number of matchings, after checking that they are matchings and contain every edge once.
Rank colors_of(const Graph& graph) {
  const auto matchings = color_edges(graph);
  EdgeSet found;
  for (const Partners& partners : matchings)
    for (Rank u = 0; u < graph.size(); ++u) {
      const Rank v = partners[static_cast<std::size_t>(u)];
      EXPECT_EQ(partners[static_cast<std::size_t>(v)], u);
      if (u < v) {
        EXPECT_TRUE(found.emplace(u, v).second) << "twice: " << u << ", " << v;
      }
    }
  EXPECT_EQ(found, edge_set_of(graph));
  return static_cast<Rank>(matchings.size());
}

Rank colors_of(const std::string& topology, Rank n) {
  return colors_of(*graph_of(*make_schedule(topology, n), /*as_undirected=*/true));
}

TEST(EdgeColoringTest, BipartiteGraphsTakeAsManyColorsAsTheirLargestDegree) {
  EXPECT_EQ(colors_of("ring", 8), 2);
  EXPECT_EQ(colors_of("ring", 100), 2);
  EXPECT_EQ(colors_of("chain", 9), 2);
  EXPECT_EQ(colors_of("star", 12), 11);
  EXPECT_EQ(colors_of("torus", 16), 4);
  EXPECT_EQ(colors_of("torus", 36), 4);
  EXPECT_EQ(colors_of("grid", 30), 4);
  EXPECT_EQ(colors_of("hypercube", 64), 6);
  EXPECT_EQ(colors_of("binary-tree", 31), 3);
}

TEST(EdgeColoringTest, OddRingsTakeOneMore) {
  EXPECT_EQ(colors_of("ring", 3), 3);
  EXPECT_EQ(colors_of("ring", 9), 3);
}

TEST(EdgeColoringTest, RandomBipartiteGraphs) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed, 4, 4);
    std::vector<std::pair<Rank, Rank>> edges;
    for (Rank u = 0; u < 12; ++u)
      for (Rank v = 12; v < 26; ++v)
        if (random.uniform() < 0.4) edges.emplace_back(u, v);
    const StoredGraph graph(26, edges, /*directed=*/false);
    EXPECT_EQ(colors_of(graph), degree_of(graph)) << seed;
  }
}

TEST(EdgeColoringTest, OtherGraphsTakeAtMostOneMoreThanTheirLargestDegree) {
  int more = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed, 5, 5);
    std::vector<std::pair<Rank, Rank>> edges;
    for (Rank u = 0; u < 20; ++u)
      for (Rank v = u + 1; v < 20; ++v)
        if (random.uniform() < 0.3) edges.emplace_back(u, v);
    const StoredGraph graph(20, edges, /*directed=*/false);
    const Rank colors = colors_of(graph);
    EXPECT_LE(colors, degree_of(graph) + 1) << seed;
    more += colors > degree_of(graph) ? 1 : 0;
  }
  EXPECT_LE(more, 6);  // hardly any random graph needs one more
}

}  // namespace
}  // namespace starling::topology

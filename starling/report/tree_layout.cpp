#include "starling/report/tree_layout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace starling::report {
namespace {

constexpr int kMostLeavesInLayers = 24;

using Node = std::size_t;
using Neighbors = std::vector<std::vector<Node>>;

/// A tree with a root: the nodes in breadth-first order, with their children and depths.
struct Rooted {
  std::vector<Node> order;
  std::vector<Node> parent;  // the root's parent is itself
  std::vector<std::vector<Node>> children;
  std::vector<int> depth;
  int height = 0;
};

Rooted hang_up(const Neighbors& neighbors, Node root) {
  Rooted tree;
  tree.parent.assign(neighbors.size(), root);
  tree.children.resize(neighbors.size());
  tree.depth.assign(neighbors.size(), -1);
  tree.depth[root] = 0;
  tree.order.push_back(root);
  for (std::size_t k = 0; k < tree.order.size(); ++k) {
    const Node node = tree.order[k];
    for (const Node next : neighbors[node]) {
      if (tree.depth[next] >= 0) continue;
      tree.height = tree.depth[next] = tree.depth[node] + 1;
      tree.parent[next] = node;
      tree.children[node].push_back(next);
      tree.order.push_back(next);
    }
  }
  return tree;
}

Rooted hang_up_in_the_middle(const Neighbors& neighbors) {
  const Rooted down = hang_up(neighbors, 0);
  const Rooted across = hang_up(neighbors, down.order.back());  // from one end of a longest path to the other
  Node middle = across.order.back();
  for (int i = 0; i < across.height / 2; ++i) middle = across.parent[middle];
  return hang_up(neighbors, middle);
}

/// Uses the first or the last rank as the root if the tree is balanced then, because trees are usually
/// numbered like that.
Rooted hang_up_in_layers(const Neighbors& neighbors) {
  Rooted middle = hang_up_in_the_middle(neighbors);
  for (const Node root : {Node{0}, neighbors.size() - 1}) {
    Rooted tree = hang_up(neighbors, root);
    if (tree.height <= middle.height + 1) return tree;
  }
  return middle;
}

/// Places leaves at 0, 1, 2, ... from left to right, and every other node above the middle of its children.
std::vector<double> spread_leaves(const Rooted& tree, int& leaves) {
  std::vector<double> across(tree.parent.size(), 0);
  leaves = 0;
  std::vector<Node> stack = {tree.order.front()};
  while (!stack.empty()) {
    const Node node = stack.back();
    stack.pop_back();
    if (tree.children[node].empty()) across[node] = leaves++;
    stack.insert(stack.end(), tree.children[node].rbegin(), tree.children[node].rend());
  }
  for (auto node = tree.order.rbegin(); node != tree.order.rend(); ++node) {
    const std::vector<Node>& below = tree.children[*node];
    if (!below.empty()) across[*node] = (across[below.front()] + across[below.back()]) / 2;
  }
  return across;
}

/// The neighbors if the round is an undirected tree with a fork; empty otherwise.
std::optional<Neighbors> tree_of(Rank n, const DrawnRound& round) {
  if (n < 4 || static_cast<Rank>(round.edges.size()) != n - 1 || !round.groups.empty()) return std::nullopt;
  Neighbors neighbors(static_cast<std::size_t>(n));
  for (const DrawnEdge& edge : round.edges) {
    if (!edge.mutual) return std::nullopt;
    neighbors[static_cast<Node>(edge.sender)].push_back(static_cast<Node>(edge.receiver));
    neighbors[static_cast<Node>(edge.receiver)].push_back(static_cast<Node>(edge.sender));
  }
  for (auto& list : neighbors) std::sort(list.begin(), list.end());
  const bool chain =
      std::all_of(neighbors.begin(), neighbors.end(), [](const auto& list) { return list.size() < 3; });
  const bool connected = hang_up(neighbors, 0).order.size() == neighbors.size();
  if (chain || !connected) return std::nullopt;
  return neighbors;
}

}  // namespace

std::optional<TopologyLayout> layout_tree(Rank n, const DrawnRound& round, std::optional<Rank> root) {
  const std::optional<Neighbors> neighbors = tree_of(n, round);
  if (!neighbors) return std::nullopt;
  Rooted tree = root ? hang_up(*neighbors, static_cast<Node>(*root)) : hang_up_in_layers(*neighbors);
  int leaves = 0;
  std::vector<double> across = spread_leaves(tree, leaves);
  const bool radial = leaves > kMostLeavesInLayers || tree.height == 1;
  if (radial && !root) {
    tree = hang_up_in_the_middle(*neighbors);
    across = spread_leaves(tree, leaves);
  }

  TopologyLayout layout;
  layout.kind = radial ? LayoutKind::radial_tree : LayoutKind::layered_tree;
  layout.height = radial ? 1 : std::clamp(1.1 * tree.height / leaves, 0.35, 1.0);
  for (Node node = 0; node < across.size(); ++node) {
    const double down = double(tree.depth[node]) / tree.height;
    if (radial) {
      const double angle = 2 * std::numbers::pi * across[node] / leaves - std::numbers::pi / 2;
      layout.at.push_back({down * std::cos(angle), down * std::sin(angle)});
    } else {
      layout.at.push_back({2 * across[node] / (leaves - 1) - 1, layout.height * (2 * down - 1)});
    }
  }
  return layout;
}

}  // namespace starling::report

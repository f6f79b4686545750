#include "starling/topology/edge_coloring.h"

#include <algorithm>
#include <numeric>

namespace starling::topology {
namespace {

class Coloring {
 public:
  explicit Coloring(const Graph& graph) : n_(graph.size()) {
    Rank degree = 0;
    for (Rank i = 0; i < n_; ++i) degree = std::max(degree, graph.out_degree(i));
    colors_ = static_cast<std::size_t>(degree) + 1;
    at_.assign(static_cast<std::size_t>(n_) * colors_, -1);
  }

  void add(Rank u, Rank v, const std::vector<Rank>& neighbors) {
    const std::vector<Rank> fan = maximal_fan(u, v, neighbors);
    const std::size_t c = free_color(u);
    const std::size_t d = free_color(fan.back());
    if (c != d) invert_path(u, c, d);
    // After the inversion d is free on u, and on some w of the fan whose prefix is still a fan.
    std::size_t w = 0;
    while (!is_free(fan[w], d)) ++w;
    for (std::size_t i = 0; i < w; ++i) {
      const std::size_t color = color_of(u, fan[i + 1]);
      clear(u, fan[i + 1], color);
      set(u, fan[i], color);
    }
    set(u, fan[w], d);
  }

  // Tries the smallest colors first: the fewer edges, the likelier all of them can be recolored.
  void save_a_color() {
    std::vector<std::size_t> order(colors_);
    std::vector<Rank> ends(colors_, 0);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t c = 0; c < colors_; ++c)
      for (Rank v = 0; v < n_; ++v) ends[c] += is_free(v, c) ? 0 : 1;
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return ends[a] < ends[b]; });
    if (ends[order.front()] == 0) return;
    for (const std::size_t c : order)
      if (emptied(c)) return;
  }

  std::vector<Partners> matchings() const {
    std::vector<Partners> all;
    for (std::size_t c = 0; c < colors_; ++c) {
      Partners partners(static_cast<std::size_t>(n_));
      std::iota(partners.begin(), partners.end(), 0);
      bool used = false;
      for (Rank i = 0; i < n_; ++i)
        if (const Rank j = at(i, c); j >= 0) {
          partners[static_cast<std::size_t>(i)] = j;
          used = true;
        }
      if (used) all.push_back(std::move(partners));
    }
    return all;
  }

 private:
  Rank at(Rank v, std::size_t c) const { return at_[static_cast<std::size_t>(v) * colors_ + c]; }
  Rank& at(Rank v, std::size_t c) { return at_[static_cast<std::size_t>(v) * colors_ + c]; }
  bool is_free(Rank v, std::size_t c) const { return at(v, c) < 0; }
  void set(Rank u, Rank v, std::size_t c) {
    at(u, c) = v;
    at(v, c) = u;
  }
  void clear(Rank u, Rank v, std::size_t c) { at(u, c) = at(v, c) = -1; }

  std::size_t free_color(Rank v) const {
    std::size_t c = 0;
    while (!is_free(v, c)) ++c;  // there is one color more than a vertex has neighbors
    return c;
  }

  // The color of an edge; colors_ if it has none yet.
  std::size_t color_of(Rank u, Rank v) const {
    std::size_t c = 0;
    while (c < colors_ && at(u, c) != v) ++c;
    return c;
  }

  bool emptied(std::size_t color) {
    for (Rank u = 0; u < n_; ++u)
      if (const Rank v = at(u, color); v > u && !recolored(u, v, color)) return false;
    return true;
  }

  // Gives edge (u, v) a color c that is free on u, where d is free on v, by swapping c and d on the path from
  // v, unless that path leads to u.
  bool recolored(Rank u, Rank v, std::size_t color) {
    for (std::size_t c = 0; c < colors_; ++c) {
      if (c == color || !is_free(u, c)) continue;
      for (std::size_t d = 0; d < colors_; ++d) {
        if (d == color || !is_free(v, d)) continue;
        if (c != d && !is_free(v, c)) {
          if (end_of_path(v, d, c) == u) continue;
          invert_path(v, d, c);
        }
        clear(u, v, color);
        set(u, v, c);
        return true;
      }
    }
    return false;
  }

  Rank end_of_path(Rank v, std::size_t c, std::size_t d) const {
    for (std::size_t color = d; at(v, color) >= 0; color = color == d ? c : d) v = at(v, color);
    return v;
  }

  // A maximal fan of u: neighbors, beginning with v, such that each next edge's color is free on the neighbor
  // before.
  std::vector<Rank> maximal_fan(Rank u, Rank v, const std::vector<Rank>& neighbors) const {
    std::vector<Rank> fan = {v};
    std::vector<Rank> rest = neighbors;
    std::erase(rest, v);
    for (bool grown = true; grown;) {
      grown = false;
      for (const Rank next : rest) {
        const std::size_t color = color_of(u, next);
        if (color == colors_ || !is_free(fan.back(), color)) continue;
        fan.push_back(next);
        std::erase(rest, next);
        grown = true;
        break;
      }
    }
    return fan;
  }

  // Swaps c and d along the path that leaves u by d; c is free on u.
  void invert_path(Rank u, std::size_t c, std::size_t d) {
    std::vector<Rank> path = {u};
    for (std::size_t color = d; at(path.back(), color) >= 0; color = color == d ? c : d)
      path.push_back(at(path.back(), color));
    for (std::size_t i = 0; i + 1 < path.size(); ++i) clear(path[i], path[i + 1], i % 2 == 0 ? d : c);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) set(path[i], path[i + 1], i % 2 == 0 ? c : d);
  }

  Rank n_;
  std::size_t colors_;
  std::vector<Rank> at_;  // at_[v * colors + c]: the neighbor that v's edge of color c leads to, or -1
};

}  // namespace

std::vector<Partners> color_edges(const Graph& graph) {
  Coloring coloring(graph);
  std::vector<Rank> neighbors;
  for (Rank u = 0; u < graph.size(); ++u) {
    neighbors.clear();
    graph.append_out(u, neighbors);
    for (const Rank v : neighbors)
      if (u < v) coloring.add(u, v, neighbors);
  }
  coloring.save_a_color();
  return coloring.matchings();
}

}  // namespace starling::topology

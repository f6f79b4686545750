#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/topology/schedule.h"

namespace starling::topology {

/// How edge weights follow from a graph.
enum class Weights {
  metropolis,  // 1 / (1 + larger degree), rest on the diagonal: doubly stochastic, any undirected graph
  uniform,     // 1 / (in-degree + 1): rows sum to one, columns too on regular graphs only
  laplacian,   // I - a L with the best a = 2 / (lambda_2 + lambda_n); weights may be negative
  push,  // each sender gives 1 / (out-degree + 1) to every receiver: only columns sum to one, needs push-sum
};

/// The declaration of `weights=`, for families whose graph allows several.
Parameter weights_parameter(const std::string& fallback);
Weights read_weights(const Parameters& parameters);

/// A graph without weights whose neighbors are computed, so it need not be stored. No loops, no parallel
/// edges.
class Graph {
 public:
  explicit Graph(Rank n) : n_(n) {}
  virtual ~Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Rank size() const { return n_; }
  virtual bool directed() const { return false; }
  /// Appends the destinations of `rank`; in an undirected graph, its neighbors.
  virtual void append_out(Rank rank, std::vector<Rank>& out) const = 0;
  virtual void append_in(Rank rank, std::vector<Rank>& out) const { append_out(rank, out); }
  virtual Rank out_degree(Rank rank) const = 0;
  virtual Rank in_degree(Rank rank) const { return out_degree(rank); }

 private:
  Rank n_;
};

/// A graph held in memory as sorted neighbor lists.
class StoredGraph final : public Graph {
 public:
  /// Edges are (from, to), each once; an undirected graph takes each edge in one direction and adds the
  /// other.
  StoredGraph(Rank n, const std::vector<std::pair<Rank, Rank>>& edges, bool directed);

  bool directed() const override { return directed_; }
  void append_out(Rank rank, std::vector<Rank>& out) const override { out_.append(rank, out); }
  void append_in(Rank rank, std::vector<Rank>& out) const override { in().append(rank, out); }
  Rank out_degree(Rank rank) const override { return out_.degree(rank); }
  Rank in_degree(Rank rank) const override { return in().degree(rank); }

 private:
  struct Lists {
    std::vector<std::size_t> start;
    std::vector<Rank> neighbor;
    void append(Rank rank, std::vector<Rank>& out) const;
    Rank degree(Rank rank) const;
  };
  const Lists& in() const { return directed_ ? in_ : out_; }

  bool directed_;
  Lists out_;
  Lists in_;
};

/// The graph of one round of a schedule; groups count as complete.
std::shared_ptr<const Graph> graph_of(const Schedule& schedule, bool as_undirected);

/// Some rank that cannot reach all others or be reached from them; empty if the graph is (strongly)
/// connected.
std::optional<Rank> unreachable(const Graph& graph);

/// A static schedule: a graph with weights on it.
class GraphSchedule final : public Schedule {
 public:
  GraphSchedule(std::shared_ptr<const Graph> graph, Weights weights);

  Mixing mixing() const override { return weights_ == Weights::push ? Mixing::push_sum : Mixing::average; }
  std::optional<double> known_rho() const override { return rho_; }
  void set_known_rho(std::optional<double> rho) { rho_ = rho; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override;

  std::shared_ptr<const Graph> graph_;
  Weights weights_;
  double laplacian_step_ = 0;
  std::optional<double> rho_;
};

}  // namespace starling::topology

namespace starling {
using topology::Graph;
using topology::graph_of;
using topology::Weights;
}  // namespace starling

#include <array>

#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// 0 has one child, 1; w >= 1 has the parent w div 2 and the children 2w and 2w+1. The mirror image is w ->
/// n-1-w.
class BinaryTree final : public Graph {
 public:
  BinaryTree(Rank n, bool mirror) : Graph(n), mirror_(mirror) {}

  void append_out(Rank rank, std::vector<Rank>& out) const override {
    const std::int64_t w = reflect(rank);
    if (w > 0) out.push_back(reflect(w / 2));
    for (std::int64_t child = w == 0 ? 1 : 2 * w; child <= 2 * w + 1 && child < size(); ++child)
      out.push_back(reflect(child));
  }
  Rank out_degree(Rank rank) const override {
    const std::int64_t w = reflect(rank);
    if (w == 0) return size() > 1 ? 1 : 0;
    return 1 + (2 * w < size() ? 1 : 0) + (2 * w + 1 < size() ? 1 : 0);
  }

 private:
  Rank reflect(std::int64_t w) const { return static_cast<Rank>(mirror_ ? size() - 1 - w : w); }
  bool mirror_;
};

/// Breadth-first: the root has k children, every other node k-1.
class KTree final : public Graph {
 public:
  KTree(Rank n, std::int64_t k) : Graph(n), k_(k) {}

  void append_out(Rank rank, std::vector<Rank>& out) const override {
    if (rank > 0) out.push_back(static_cast<Rank>(rank <= k_ ? 0 : (rank - k_ - 1) / (k_ - 1) + 1));
    for (std::int64_t child = first_child(rank); child < first_child(rank + 1) && child < size(); ++child)
      out.push_back(static_cast<Rank>(child));
  }
  Rank out_degree(Rank rank) const override {
    const std::int64_t first = std::min<std::int64_t>(first_child(rank), size());
    const std::int64_t last = std::min<std::int64_t>(first_child(rank + 1), size());
    return static_cast<Rank>(last - first) + (rank > 0 ? 1 : 0);
  }

 private:
  std::int64_t first_child(std::int64_t w) const { return w == 0 ? 1 : k_ + 1 + (w - 1) * (k_ - 1); }
  std::int64_t k_;
};

/// The tree in even rounds, its mirror image in odd ones: the leaves of one are inner nodes of the other.
class DoubleBinaryTrees final : public Schedule {
 public:
  DoubleBinaryTrees(Rank n, Weights weights)
      : Schedule(n),
        trees_{std::make_shared<GraphSchedule>(std::make_shared<BinaryTree>(n, false), weights),
               std::make_shared<GraphSchedule>(std::make_shared<BinaryTree>(n, true), weights)} {}

  Step period() const override { return size() > 1 ? 2 : 1; }
  Mixing mixing() const override { return trees_[0]->mixing(); }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    trees_[static_cast<std::size_t>(step % 2)]->exchange(step, rank, out);
  }
  std::array<SchedulePtr, 2> trees_;
};

}  // namespace

Family binary_tree() {
  return {.name = "binary-tree",
          .summary = "w with w div 2",
          .parameters = {{"mirror", "no", "yes: w becomes n-1-w"}, weights_parameter("metropolis")},
          .make = [](const Parameters& parameters, const TopologySetting& setting) {
            return weighted(std::make_shared<BinaryTree>(setting.n, parameters.yes("mirror")), parameters);
          }};
}

Family double_binary_trees() {
  return {
      .name = "double-binary-trees",
      .summary = "the binary tree and its mirror image, in turn",
      .parameters = {weights_parameter("metropolis")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<DoubleBinaryTrees>(setting.n, read_weights(parameters));
      },
      .changing = true};
}

Family k_tree() {
  return {
      .name = "k-tree",
      .summary = "the root has k children, every other node k-1",
      .parameters = {{"k", "3", "neighbors of an inner node, at least 2"}, weights_parameter("metropolis")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) {
        return weighted(std::make_shared<KTree>(setting.n, parameters.integer("k", 2, INT32_MAX)),
                        parameters);
      }};
}

}  // namespace starling::topology::family

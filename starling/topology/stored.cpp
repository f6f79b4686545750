#include "starling/topology/stored.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::topology {
namespace {

constexpr double kSumTolerance = 1e-9;

class StoredSchedule final : public Schedule {
 public:
  StoredSchedule(Rank n, const std::vector<Entry>& entries, Mixing mixing)
      : Schedule(n),
        mixing_(mixing),
        self_(static_cast<std::size_t>(n), 0.0),
        sources_(self_.size()),
        receivers_(self_.size()) {
    for (const Entry& entry : entries) {
      const auto receiver = static_cast<std::size_t>(entry.receiver);
      if (entry.receiver == entry.sender) {
        self_[receiver] = entry.weight;
      } else if (entry.weight != 0) {
        sources_[receiver].push_back({entry.sender, Lane::a, entry.weight, 0});
        receivers_[static_cast<std::size_t>(entry.sender)].push_back(entry.receiver);
      }
    }
  }
  Mixing mixing() const override { return mixing_; }

 private:
  void fill(Step /*step*/, Rank rank, Exchange& out) const override {
    const auto i = static_cast<std::size_t>(rank);
    out.self_weight = self_[i];
    out.sources.assign(sources_[i].begin(), sources_[i].end());
    for (const Rank receiver : receivers_[i]) out.add_destination(receiver);
  }

  Mixing mixing_;
  std::vector<double> self_;
  std::vector<std::vector<Source>> sources_;
  std::vector<std::vector<Rank>> receivers_;
};

void check_size(Rank n, const std::string& origin) {
  if (n < 1)
    throw InvalidArgument(fmt::format("{}: a topology needs at least one rank, not n = {}", origin, n));
}

// `number` is the edge's number in the input, from 1, so that the user can find it.
void check_ranks(Rank first, Rank second, Rank n, std::size_t number, const std::string& origin) {
  for (const Rank rank : {first, second})
    if (rank < 0 || rank >= n)
      throw InvalidArgument(fmt::format("{}: edge {} ({}, {}): rank {} is out of range; n = {} allows 0..{}",
                                        origin, number, first, second, rank, n, n - 1));
}

void check_connected(const Graph& graph, const std::string& origin) {
  if (const auto rank = unreachable(graph))
    throw InvalidArgument(fmt::format("{}: the graph is not {}connected: rank {} is cut off from rank 0",
                                      origin, graph.directed() ? "strongly " : "", *rank));
}

}  // namespace

std::shared_ptr<Schedule> schedule_from_weights(Rank n, std::vector<Entry> entries, StoredOptions options,
                                                const std::string& origin) {
  check_size(n, origin);
  for (std::size_t i = 0; i < entries.size(); ++i)
    check_ranks(entries[i].receiver, entries[i].sender, n, i + 1, origin);
  std::sort(entries.begin(), entries.end(), [](const Entry& left, const Entry& right) {
    return left.receiver != right.receiver ? left.receiver < right.receiver : left.sender < right.sender;
  });
  std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
  std::vector<std::pair<Rank, Rank>> edges;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i > 0 && entries[i - 1].receiver == entry.receiver && entries[i - 1].sender == entry.sender)
      throw InvalidArgument(
          fmt::format("{}: row {}, column {} is given twice", origin, entry.receiver, entry.sender));
    if (!std::isfinite(entry.weight))
      throw InvalidArgument(
          fmt::format("{}: row {}, column {} is not a finite number", origin, entry.receiver, entry.sender));
    if (entry.weight < 0 && !options.allow_negative && !options.as_is)
      throw InvalidArgument(fmt::format("{}: row {}, column {} is {}; negative weights need negative=yes",
                                        origin, entry.receiver, entry.sender, entry.weight));
    sums[static_cast<std::size_t>(options.push ? entry.sender : entry.receiver)] += entry.weight;
    if (entry.receiver != entry.sender && entry.weight != 0) edges.emplace_back(entry.sender, entry.receiver);
  }
  for (std::size_t i = 0; i < sums.size() && !options.as_is; ++i)
    if (std::abs(sums[i] - 1) > kSumTolerance)
      throw InvalidArgument(
          fmt::format("{}: {} {} sums to {}, not to 1", origin, options.push ? "column" : "row", i, sums[i]));
  if (!options.as_is) check_connected(StoredGraph(n, edges, /*directed=*/true), origin);
  return std::make_shared<StoredSchedule>(n, entries, options.push ? Mixing::push_sum : Mixing::average);
}

std::shared_ptr<Schedule> schedule_from_edges(Rank n, const std::vector<std::pair<Rank, Rank>>& edges,
                                              Weights weights, bool directed, const std::string& origin) {
  check_size(n, origin);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto [from, to] = edges[i];
    check_ranks(from, to, n, i + 1, origin);
    if (from == to)
      throw InvalidArgument(
          fmt::format("{}: edge {} ({}, {}) joins a rank to itself", origin, i + 1, from, to));
  }
  auto graph = std::make_shared<StoredGraph>(n, edges, directed);
  check_connected(*graph, origin);
  return std::make_shared<GraphSchedule>(std::move(graph), weights);
}

}  // namespace starling::topology

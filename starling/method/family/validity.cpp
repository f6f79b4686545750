#include "starling/method/family/validity.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <set>

#include "starling/base/error.h"
#include "starling/topology/circulant.h"
#include "starling/topology/spectrum.h"

namespace starling::methods {
namespace {

constexpr double kSame = 1e-12;
constexpr Step kMostRounds = 4096;   // of a period that is looked through
constexpr double kSumOff = 1e-6;     // of a column that sums to one, up to rounding to float32
constexpr Step kMostRows = 1 << 18;  // ranks times rounds whose columns are summed

[[noreturn]] void refuse(const std::string& method, const Schedule& schedule, const std::string& why,
                         const std::string& instead) {
  throw InvalidArgument(fmt::format("{} {}; {} is not, use {}", method, why, schedule.name(), instead));
}

bool is_fixed(const Schedule& schedule) {
  return !schedule.random() && schedule.period() == 1;
}

bool has_groups(const Schedule& schedule) {
  const Step rounds = std::clamp<Step>(schedule.period(), 1, kMostRounds);
  for (Step step = 0; step < rounds; ++step)
    for (const Rank rank : {Rank{0}, static_cast<Rank>(schedule.size() - 1)})
      if (schedule.exchange(step, rank).group.size() > 1) return true;
  return false;
}

bool is_symmetric(const Schedule& schedule) {
  std::vector<Entry> edges = RoundMatrix(schedule, 0).entries();
  const auto find = [&](Rank receiver, Rank sender) {
    const auto before = [](const Entry& left, const Entry& right) {
      return std::pair(left.receiver, left.sender) < std::pair(right.receiver, right.sender);
    };
    const auto found = std::lower_bound(edges.begin(), edges.end(), Entry{receiver, sender}, before);
    return found != edges.end() && found->receiver == receiver && found->sender == sender ? found->weight : 0;
  };
  return std::all_of(edges.begin(), edges.end(), [&](const Entry& edge) {
    return edge.sender <= edge.receiver || std::abs(find(edge.sender, edge.receiver) - edge.weight) < kSame;
  });
}

// Everybody's mean and nothing else.
bool is_global_mean(const Schedule& schedule) {
  const Exchange exchange = schedule.exchange(0, 0);
  return exchange.group.size() == schedule.size() && exchange.sources.empty();
}

}  // namespace

void require_fixed_symmetric(const Schedule& schedule, const std::string& method) {
  const std::string instead =
      "ring, star or another static symmetric topology, or the method gradient-tracking";
  if (schedule.size() == 1) return;
  if (schedule.mixing() != Mixing::average || !is_fixed(schedule))
    refuse(method, schedule, "needs weights that stay the same in every step", instead);
  if (!is_global_mean(schedule) && !is_symmetric(schedule))
    refuse(method, schedule, "needs symmetric weights", instead);
}

void require_column_sums(const Schedule& schedule, const std::string& method) {
  if (schedule.random() || schedule.period() < 1 || schedule.period() > kMostRows / schedule.size()) return;
  for (Step step = 0; step < schedule.period(); ++step) {
    std::vector<double> sums(static_cast<std::size_t>(schedule.size()), 0.0);
    for (const Entry& entry : RoundMatrix(schedule, step).entries())
      sums[static_cast<std::size_t>(entry.sender)] += entry.weight;
    for (std::size_t rank = 0; rank < sums.size(); ++rank)
      if (std::abs(sums[rank] - 1) > kSumOff)
        throw InvalidArgument(
            fmt::format("{} needs weights whose columns sum to one, too, so that the sum over the ranks "
                        "stays; {} gives rank "
                        "{} a total weight of {:g} in step {}; use Metropolis weights or a regular topology "
                        "such as ring or "
                        "exponential, or push-diging with weights=push",
                        method, schedule.name(), rank, sums[rank], step));
  }
}

void require_fixed_neighbors(const Schedule& schedule, const std::string& method) {
  if (schedule.size() == 1) return;
  if (!is_fixed(schedule) || has_groups(schedule))
    refuse(method, schedule,
           "follows its neighbours from step to step, which must be the same and known one by one",
           "ring, torus, exponential or another static graph");
}

void require_known_neighbors(const Schedule& schedule, const std::string& method) {
  if (schedule.random() || schedule.period() < 1 || schedule.period() > kMostRounds)
    refuse(method, schedule, "needs neighbours that are known beforehand",
           "ring, exponential, one-peer-exponential or complete");
  // A group alone is many single neighbours; a group that then talks to others is not.
  for (Step step = 0; step < schedule.period(); ++step)
    if (const Exchange first = schedule.exchange(step, 0); first.group.size() > 1 && !first.sources.empty())
      refuse(method, schedule, "needs a topology of single neighbours, without means within groups",
             "ring, exponential, one-peer-exponential or complete");
}

void require_both_directions(const Schedule& schedule, const std::string& method) {
  require_known_neighbors(schedule, method);
  std::set<std::pair<Rank, Rank>> edges;
  for (Step step = 0; step < schedule.period(); ++step)
    for (Rank rank = 0; rank < schedule.size(); ++rank)
      for (const Source& source : schedule.exchange(step, rank).sources) edges.insert({rank, source.rank});
  for (const auto& [to, from] : edges)
    if (!edges.contains({from, to}))
      refuse(method, schedule, "needs edges in both directions", "ring, torus, u-equistatic or complete");
}

void require_matchings(const Schedule& schedule, const std::string& method) {
  const Step rounds = std::clamp<Step>(schedule.period(), 1, 64);
  Exchange exchange;
  for (Step step = 0; step < rounds; ++step)
    for (Rank rank = 0; rank < std::min<Rank>(schedule.size(), 1024); ++rank) {
      schedule.exchange(step, rank, exchange);
      const bool pair = exchange.sources.size() == 1 && exchange.destinations.size() == 1 &&
                        exchange.sources[0].rank == exchange.destinations[0].rank;
      const bool alone = exchange.sources.empty() && exchange.destinations.empty();
      const bool group_of_two = exchange.group.size() == 2 && alone;
      if (group_of_two || (exchange.group.size() <= 1 && (pair || alone))) continue;
      refuse(method, schedule, "averages with one other rank at a time", "random-matching or base(k=1)");
    }
}

double least_eigenvalue_of(const Schedule& schedule) {
  if (schedule.size() == 1 || is_global_mean(schedule)) return 0;
  if (const auto* circulant = dynamic_cast<const Circulant*>(&schedule))
    return circulant_least_eigenvalue(*circulant, 0);
  return least_eigenvalue(RoundMatrix(schedule, 0)).value_or(0);
}

void forget(MutableBlock block) {
  if (block.count > 0) std::memset(block.data, 0, block.count * size_of(block.dtype));
}

}  // namespace starling::methods

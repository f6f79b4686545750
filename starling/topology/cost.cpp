#include "starling/topology/cost.h"

#include <algorithm>

#include "starling/topology/circulant.h"

namespace starling::topology {

StepCost step_cost(const Schedule& schedule, Step rounds) {
  StepCost total;
  Exchange exchange;
  const bool rank_zero_is_enough = dynamic_cast<const Circulant*>(&schedule) != nullptr;
  const Rank ranks = rank_zero_is_enough ? 1 : schedule.size();
  for (Step t = 0; t < rounds; ++t) {
    StepCost round;
    for (Rank rank = 0; rank < ranks; ++rank) {
      schedule.exchange(t, rank, exchange);
      const auto sent = static_cast<double>(exchange.destinations.size());
      const auto through = static_cast<Rank>(std::max(exchange.destinations.size(), exchange.sources.size()));
      const auto g = static_cast<double>(std::max<std::int64_t>(1, exchange.group.size()));
      round.models = std::max(round.models, through + 2 * (g - 1) / g);
      round.latencies = std::max(round.latencies, (through > 0 ? 1 : 0) + 2 * (g - 1));
      round.messages += sent + 2 * (g - 1) / g;
      const auto group_peers = static_cast<Rank>(std::min(g - 1, 2.0));  // in a ring
      round.peers = std::max(round.peers, through + group_peers);
    }
    total.models += round.models;
    total.latencies += round.latencies;
    total.messages += round.messages * (rank_zero_is_enough ? schedule.size() : 1);
    total.peers = std::max(total.peers, round.peers);
  }
  const auto count = static_cast<double>(rounds);
  total.models /= count;
  total.latencies /= count;
  total.messages /= count;
  return total;
}

StepCost parameter_server_cost(Rank n) {
  return {static_cast<double>(n), 1, 2.0 * n, n};
}

StepCost ring_allreduce_cost(Rank n) {
  return {2, 2.0 * n, 2.0 * (n - 1), 2};
}

}  // namespace starling::topology

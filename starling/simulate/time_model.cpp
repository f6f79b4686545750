#include "starling/simulate/time_model.h"

#include <algorithm>

#include "starling/simulate/node_random.h"

namespace starling::simulate {
namespace {

bool among(const std::vector<Rank>& nodes, Rank node) {
  return nodes.empty() || std::binary_search(nodes.begin(), nodes.end(), node);
}

}  // namespace

double TimeModel::compute_seconds(Rank node, Step step) const {
  const auto index = static_cast<std::size_t>(node);
  double seconds = index < compute_of.size() ? compute_of[index] : compute;
  if (stragglers.empty()) return seconds;
  // Every rule draws its number, used or not, so that one rule's nodes do not change another rule's draws.
  Random random = node_random(seed, node, step, stream::kStraggler);
  for (const Straggler& straggler : stragglers) {
    const bool hit = random.uniform() < straggler.probability;
    if (hit && (step + 1) % straggler.every == 0 && among(straggler.nodes, node))
      seconds = seconds * straggler.factor + straggler.extra;
  }
  return seconds;
}

const ModelledLink& TimeModel::link_between(Rank from, Rank to) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule)
    if (among(rule->from, from) && among(rule->to, to)) return rule->link;
  return from / ranks_per_host == to / ranks_per_host ? inside : link;
}

}  // namespace starling::simulate

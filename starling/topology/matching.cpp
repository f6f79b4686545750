#include "starling/topology/matching.h"

namespace starling::topology {

void Matching::partners(Step step, std::span<Rank> out) const {
  for (Rank rank = 0; rank < size(); ++rank) out[static_cast<std::size_t>(rank)] = partner(step, rank);
}

void Matching::fill(Step step, Rank rank, Exchange& out) const {
  const Rank other = partner(step, rank);
  if (other == rank) return;
  out.self_weight = 1 - weight_;
  out.add_pair(other, weight_);
}

}  // namespace starling::topology

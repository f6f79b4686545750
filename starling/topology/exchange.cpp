#include "starling/topology/exchange.h"

#include <algorithm>

namespace starling::topology {

Rank Group::operator[](std::int64_t i) const {
  const std::int64_t rank = first + stride * (i / block) + i % block;
  return members ? (*members)[static_cast<std::size_t>(rank)] : static_cast<Rank>(rank);
}

void Exchange::clear() {
  self_weight = 1;
  self_weight_b = 0;
  group = {};
  sources.clear();
  destinations.clear();
}

void Exchange::add_source_weight(Rank rank, double weight) {
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const Source& source) { return source.rank == rank; });
  if (found == sources.end()) {
    add_source(rank, weight);
  } else {
    found->weight += weight;
  }
}

Exchange flattened(Exchange exchange, Rank self) {
  const std::int64_t size = exchange.group.size();
  if (size < 2) return exchange;
  Exchange flat;
  flat.self_weight = 1 / static_cast<double>(size);
  for (std::int64_t i = 0; i < size; ++i)
    if (exchange.group[i] != self) flat.add_pair(exchange.group[i], flat.self_weight);
  return flat;
}

}  // namespace starling::topology

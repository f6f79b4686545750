#include "starling/method/family/round.h"

namespace starling::method::family {

Exchange flattened(Exchange exchange, Rank self) {
  const std::int64_t size = exchange.group.size();
  if (size < 2) return exchange;
  Exchange flat;
  flat.self_weight = 1 / static_cast<double>(size);
  for (std::int64_t i = 0; i < size; ++i)
    if (exchange.group[i] != self) flat.add_pair(exchange.group[i], flat.self_weight);
  return flat;
}

}  // namespace starling::method::family

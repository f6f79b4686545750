#include "starling/method/family/validity.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "starling/topology/circulant.h"
#include "starling/topology/spectrum.h"

namespace starling::method::family {

double least_eigenvalue_of(const Schedule& schedule) {
  if (schedule.size() == 1) return 0;
  // The schedule is the mean of all ranks and nothing else.
  if (const Exchange exchange = schedule.exchange(0, 0);
      exchange.group.size() == schedule.size() && exchange.sources.empty())
    return 0;
  if (const auto* circulant = dynamic_cast<const Circulant*>(&schedule))
    return circulant_least_eigenvalue(*circulant, 0);
  return least_eigenvalue(RoundMatrix(schedule, 0)).value_or(0);
}

}  // namespace starling::method::family

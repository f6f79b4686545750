#include "starling/topology/schedule.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::topology {

void Schedule::exchange(Step step, Rank rank, Exchange& out) const {
  if (rank < 0 || rank >= n_)
    throw InvalidArgument(
        fmt::format("{}: rank {} is not one of the {} ranks 0..{}", name_, rank, n_, n_ - 1));
  if (step < 0) throw InvalidArgument(fmt::format("{}: step {} is negative; steps start at 0", name_, step));
  out.clear();
  fill(step, rank, out);
}

Exchange Schedule::exchange(Step step, Rank rank) const {
  Exchange out;
  exchange(step, rank, out);
  return out;
}

}  // namespace starling::topology

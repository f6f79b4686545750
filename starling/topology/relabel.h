#pragma once

#include <vector>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// `inner` played by some of n ranks: members[r] plays rank r, in whatever order; the others do nothing.
SchedulePtr relabel(SchedulePtr inner, std::vector<Rank> members, Rank n);

}  // namespace starling::topology

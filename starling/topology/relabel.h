#pragma once

#include <vector>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// The schedule `inner` on some of n ranks: members[r], in any order, acts as rank r; the other ranks are
/// idle.
SchedulePtr relabel(SchedulePtr inner, std::vector<Rank> members, Rank n);

}  // namespace starling::topology

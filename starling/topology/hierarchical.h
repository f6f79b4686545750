#pragma once

#include "starling/topology/schedule.h"

namespace starling::topology {

/// The mean over the `local` ranks of every machine, then `outer` between the machines.
std::shared_ptr<Schedule> hierarchical_schedule(SchedulePtr outer, Rank local);

}  // namespace starling::topology

namespace starling {
using topology::hierarchical_schedule;
}  // namespace starling

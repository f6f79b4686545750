#pragma once

#include "starling/topology/schedule.h"

namespace starling {

/// `schedule`'s next step in every `every`-th step, and nobody talks to anybody in the others.
std::shared_ptr<Schedule> every_schedule(SchedulePtr schedule, Step every);

}  // namespace starling

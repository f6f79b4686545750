#pragma once

#include "starling/method/method.h"

namespace starling::method::family {

/// The smallest eigenvalue of fixed symmetric weights, as ScheduleKind::static_symmetric requires them; 0 if
/// it could not be found.
double least_eigenvalue_of(const Schedule& schedule);

}  // namespace starling::method::family

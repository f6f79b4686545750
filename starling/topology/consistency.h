#pragma once

#include <string>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// Throws InvalidArgument, naming the rank and the step, unless the exchanges of all ranks fit together: rows
/// sum to one (columns, for push-sum), and every source has a destination and the reverse. Looks at one
/// period, or at the first steps of one that is long or has none. `name` starts the message.
void check_consistent(const Schedule& schedule, const std::string& name);

/// What ranks compare: the canonical name or, of a schedule without a name, a digest of all ranks' exchanges
/// in the steps that check_consistent() looks at, which such a schedule has to pass.
std::string identity_of(const Schedule& schedule);

}  // namespace starling::topology

#pragma once

#include <string>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// Throws InvalidArgument, with the rank and the step, unless the exchanges of all ranks fit together: rows
/// (columns, for push-sum) sum to one, and sources and destinations match. Checks one period, or the first
/// steps if the period is long or there is none. `name` starts the message.
void check_consistent(const Schedule& schedule, const std::string& name);

/// What ranks compare: the canonical name or, of a schedule without a name, a digest of all ranks' exchanges
/// in the steps that check_consistent() looks at, which such a schedule has to pass.
std::string identity_of(const Schedule& schedule);

}  // namespace starling::topology

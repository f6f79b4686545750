#pragma once

#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// The CPUs that this process may use, in ascending order; containers and taskset may restrict them.
std::vector<int> allowed_cpus();

/// The CPUs of one of n ranks: a contiguous share if there are enough, otherwise one each, round robin.
std::vector<int> share_of_cpus(const std::vector<int>& cpus, Rank rank, Rank n);

}  // namespace starling::launch

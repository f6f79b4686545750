#pragma once

#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// The CPUs this process may use, in rising order: containers and taskset leave fewer than the machine has.
std::vector<int> allowed_cpus();

/// The CPUs of one of n ranks: contiguous shares while there are enough, else one each, round robin.
std::vector<int> share_of_cpus(const std::vector<int>& cpus, Rank rank, Rank n);

}  // namespace starling::launch

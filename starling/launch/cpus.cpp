#include "starling/launch/cpus.h"

#include <cerrno>
#include <cstring>
#include <sched.h>

#include "starling/base/error.h"

namespace starling::launch {

std::vector<int> allowed_cpus() {
  // The kernel requires a set at least as large as its own, whose size is not known.
  for (std::size_t limit = 1024; limit <= (std::size_t{1} << 20); limit *= 2) {
    cpu_set_t* set = CPU_ALLOC(limit);
    if (set == nullptr) throw Error("out of memory");
    const std::size_t bytes = CPU_ALLOC_SIZE(limit);
    const int result = sched_getaffinity(0, bytes, set);
    const int error = errno;
    std::vector<int> cpus;
    for (std::size_t cpu = 0; result == 0 && cpu < limit; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<int>(cpu));
    CPU_FREE(set);
    if (result == 0) return cpus;
    if (error != EINVAL)
      throw Error(std::string("cannot determine the usable CPUs: ") + std::strerror(error));
  }
  throw Error("cannot determine the usable CPUs: there are too many");
}

std::vector<int> share_of_cpus(const std::vector<int>& cpus, Rank rank, Rank n) {
  const std::size_t count = cpus.size();
  const auto k = static_cast<std::size_t>(rank);
  const auto ranks = static_cast<std::size_t>(n);
  if (count < ranks) return {cpus[k % count]};
  const auto at = [&](std::size_t index) {
    return cpus.begin() + static_cast<std::ptrdiff_t>(index * count / ranks);
  };
  return {at(k), at(k + 1)};
}

}  // namespace starling::launch

#include "starling/fabric/local/limits.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <sys/resource.h>

#include "starling/base/error.h"
#include "starling/fabric/local/region.h"

namespace starling::fabric::local {
namespace {

using Resource = __rlimit_resource_t;

// Empty if unlimited.
std::optional<std::uint64_t> limit_of(Resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

void check_memory_limits(Rank ranks) {
  if (const auto limit = limit_of(RLIMIT_FSIZE); limit && *limit < Region::kSpan)
    throw Error(fmt::format(
        "the limit on file sizes (RLIMIT_FSIZE, ulimit -f) is {} bytes, and the shared memory of a "
        "rank needs {}: start with ulimit -f unlimited",
        *limit, Region::kSpan));
  const std::uint64_t needed = Region::kSpan * static_cast<std::uint64_t>(ranks);
  if (const auto limit = limit_of(RLIMIT_AS); limit && *limit < needed)
    throw Error(
        fmt::format("the limit on address space (RLIMIT_AS, ulimit -v) is {} bytes, and {} ranks on one host "
                    "need {} in each process (address space, not memory): start with ulimit -v unlimited",
                    *limit, ranks, needed));
}

std::string open_failure(int reason, Rank ranks) {
  if (reason != EMFILE) return std::strerror(reason);
  // Rank 0 has a socket, a region and a pidfd of every rank open at once.
  constexpr int kEach = 3;
  const auto limit = limit_of(RLIMIT_NOFILE);
  return fmt::format(
      "the limit on open files (RLIMIT_NOFILE, ulimit -n) is {}, and a rendezvous of {} ranks needs {} in "
      "addition to those that the program has open: raise it",
      limit ? std::to_string(*limit) : "not set", ranks, kEach * ranks + 1);
}

}  // namespace starling::fabric::local

#include <fmt/format.h>

#include "starling/fabric/local/local.h"
#include "starling/fabric/plugin.h"
#include "starling/launch/exited_ranks.h"

namespace starling::fabric {
namespace {

std::shared_ptr<Fabric> join_ranks_of_host(const FabricRequest& request) {
  LocalOptions options;
  options.join_timeout = request.timeout;
  options.exited = [exits = std::make_shared<launch::ExitedRanks>()](Rank rank) { return exits->has(rank); };
  // A different name for each join, so that a process that rejoins does not meet a process that joins for the
  // first time.
  const std::string job = request.times == 0 ? request.job : fmt::format("{}#{}", request.job, request.times);
  return join_local(job, request.rank, request.size, options);
}

}  // namespace

FabricKind local_fabric() {
  return {.name = "local",
          .summary = "processes of one host, through shared memory",
          .join = join_ranks_of_host,
          .needs_job = true};
}

}  // namespace starling::fabric

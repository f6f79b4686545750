#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/base/os/host.h"
#include "starling/fabric/network/network.h"

namespace starling::fabric {

/// A fabric that reaches ranks of the same host through shared memory and others over the network. `local`
/// joins the ranks of this host; `same_host` lists their global ranks in the order of their local ranks.
/// `ranks_per_host` is the result of Fabric::ranks_per_host().
std::shared_ptr<Fabric> make_hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
                                    const std::vector<Rank>& same_host, Rank ranks_per_host,
                                    std::unique_ptr<Admission> admission = nullptr);

/// Exchanges host identities with all ranks over the network, and joins those of this host under `job`.
std::shared_ptr<Fabric> join_hybrid(std::shared_ptr<NetworkFabric> network, const std::string& job,
                                    std::chrono::milliseconds timeout,
                                    const std::string& host = host_identity());

/// join_hybrid as a function that wraps every network fabric of a job.
WrapFabric wrap_in_hybrid(const std::string& job, std::chrono::milliseconds timeout,
                          const std::string& host = host_identity());

}  // namespace starling::fabric

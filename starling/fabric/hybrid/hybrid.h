#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/network/network.h"

namespace starling {

/// Ranks of one host through shared memory, others over the network. `local` joins the ranks of this host,
/// among whom this one has the number local->rank(); `same_host` lists them in that order, with their numbers
/// in the whole. `ranks_per_host` is what Fabric::ranks_per_host() will say.
std::shared_ptr<Fabric> make_hybrid(std::shared_ptr<Fabric> local, std::shared_ptr<NetworkFabric> network,
                                    const std::vector<Rank>& same_host, Rank ranks_per_host,
                                    std::unique_ptr<Door> door = nullptr);

/// What tells hosts apart: the same for processes that can share memory. STARLING_HOST pretends another.
std::string host_identity();

/// Asks everybody over the network which host it is on, and joins those of this host under `job`.
std::shared_ptr<Fabric> join_hybrid(std::shared_ptr<NetworkFabric> network, const std::string& job,
                                    std::chrono::milliseconds timeout,
                                    const std::string& host = host_identity());

/// The same as what is made around every network fabric of a job.
FinishFabric finish_hybrid(const std::string& job, std::chrono::milliseconds timeout,
                           const std::string& host = host_identity());

}  // namespace starling

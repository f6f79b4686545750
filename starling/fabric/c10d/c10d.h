#pragma once

#include <memory>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/plugin.h"

namespace starling {

/// A fabric over process groups that exist; the store is where its members agree after deaths.
std::shared_ptr<NetworkFabric> adopt_c10d(c10d_engine::Groups groups, c10d_engine::StorePtr store);

/// Meets the others in the store at `request.meeting`, or the one that torchrun's variables name, and makes
/// Gloo groups.
std::shared_ptr<Fabric> join_c10d(const FabricRequest& request);

/// Waits in that store until members of the job let this process in, as a rank of theirs.
std::shared_ptr<Fabric> enter_c10d(const FabricRequest& request, const FinishFabric& finish);

}  // namespace starling

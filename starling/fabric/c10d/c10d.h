#pragma once

#include <memory>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric {

/// Makes a fabric over existing process groups; its ranks agree on membership changes through the store.
std::shared_ptr<NetworkFabric> adopt_c10d(c10d_engine::Groups groups, c10d_engine::StorePtr store);

/// Joins the other ranks through the store at `request.store_address`, or the one of torchrun's variables,
/// and makes Gloo groups.
std::shared_ptr<Fabric> join_c10d(const FabricRequest& request);

/// Waits until the members of a running job admit this process, through the same store.
std::shared_ptr<Fabric> enter_c10d(const FabricRequest& request, const WrapFabric& wrap);

}  // namespace starling::fabric

#pragma once

#include <functional>
#include <memory>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/plugin.h"

namespace starling::c10d_engine {

/// Meets the other ranks in a part of the job's store.
using MakeFabric = std::shared_ptr<NetworkFabric> (*)(const std::string& part, const FabricRequest& request);

/// The door of a job's first fabric, in the store of the job.
std::unique_ptr<Door> make_door(StorePtr store, const FabricRequest& request, MakeFabric make);

/// What a newcomer does: waits before that door, until `request.timeout`.
std::shared_ptr<Fabric> enter(const StorePtr& store, const FabricRequest& request, MakeFabric make,
                              const FinishFabric& finish);

}  // namespace starling::c10d_engine

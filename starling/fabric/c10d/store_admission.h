#pragma once

#include <functional>
#include <memory>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric::c10d_engine {

/// Joins the other ranks through a part of the job's store.
using MakeFabric = std::shared_ptr<NetworkFabric> (*)(const std::string& part, const FabricRequest& request);

/// The admission of a job's first fabric, through the store of the job.
std::unique_ptr<Admission> make_store_admission(StorePtr store, const FabricRequest& request,
                                                MakeFabric make);

/// Called by a newcomer: waits until it is admitted, at most `request.timeout`.
std::shared_ptr<Fabric> enter(const StorePtr& store, const FabricRequest& request, MakeFabric make,
                              const WrapFabric& wrap);

}  // namespace starling::fabric::c10d_engine

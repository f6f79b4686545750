#pragma once

#include <memory>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/wire.h"

namespace starling::c10d_engine {

/// Frames over the point-to-point calls of process groups (Gloo).
std::unique_ptr<network::Wire> make_wire(Groups groups);

/// The register of all ranks, in the store that they met in.
std::unique_ptr<network::Ledger> make_ledger(StorePtr store);

}  // namespace starling::c10d_engine

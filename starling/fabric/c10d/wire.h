#pragma once

#include <memory>
#include <vector>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/wire.h"

namespace starling::c10d_engine {

/// Frames over the point-to-point calls of process groups (Gloo). `members` are the ranks of the `size` that
/// are in the groups, in the groups' order; the others are gone from the beginning.
std::unique_ptr<network::Wire> make_wire(Groups groups, Rank size, const std::vector<Rank>& members);

/// The register of all ranks, in the store that they met in. `watch` lives as long.
std::unique_ptr<network::Ledger> make_ledger(StorePtr store, std::shared_ptr<void> watch = nullptr);

}  // namespace starling::c10d_engine

#pragma once

#include <memory>
#include <vector>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/network/transport.h"

namespace starling::fabric::c10d_engine {

/// A transport over the point-to-point calls of process groups (Gloo). `members` are the ranks (of `size`)
/// that are in the groups, in the groups' order; the others are gone from the beginning.
std::unique_ptr<network::Transport> make_transport(Groups groups, Rank size,
                                                   const std::vector<Rank>& members);

/// Consensus of all ranks in their rendezvous store. Keeps `watch` alive.
std::unique_ptr<network::Consensus> make_store_consensus(StorePtr store,
                                                         std::shared_ptr<void> watch = nullptr);

}  // namespace starling::fabric::c10d_engine

#pragma once

#include <functional>
#include <vector>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric::c10d_engine {

/// Process groups and the ranks in them, in the groups' order: all except those that exited before.
struct FormedGroups {
  Groups groups;
  std::vector<Rank> members;
};

/// Makes process groups of `size` processes through a store of their own. Throws on failure.
using MakeGroups =
    std::function<Groups(const StorePtr& store, Rank rank, Rank size, std::chrono::milliseconds)>;

/// Waits for all ranks of the job except those that the launcher has seen exit, and connects them. If an
/// attempt fails on any rank, because a rank exits in the middle or a foreign process connects in place of
/// one, all ranks repeat it until `request.timeout`. Throws Error that names the missing ranks. `store` is
/// for this formation only, `job` is the store of the whole job.
FormedGroups form_groups(const StorePtr& store, const StorePtr& job, const FabricRequest& request,
                         const MakeGroups& make);

}  // namespace starling::fabric::c10d_engine

#pragma once

#include <functional>
#include <vector>

#include "starling/fabric/c10d/engine.h"
#include "starling/fabric/plugin.h"

namespace starling::c10d_engine {

/// Process groups, and the ranks in them, in the groups' order: all but those that died before they were
/// made.
struct Met {
  Groups groups;
  std::vector<Rank> members;
};

/// Connects `size` processes, of which this one is `rank`, in a store of their own. Throws on failure.
using MakeGroups =
    std::function<Groups(const StorePtr& store, Rank rank, Rank size, std::chrono::milliseconds)>;

/// Waits for all ranks of the job, except for those that the launcher has seen exit, and connects them. An
/// attempt that fails on any rank, because one exits in the middle of it or a stranger connects in the place
/// of a rank, is repeated by all of them, until `request.timeout`. Throws Error that names who is missing.
/// `store` is for this meeting only, `job` the whole job's.
Met meet_all(const StorePtr& store, const StorePtr& job, const FabricRequest& request,
             const MakeGroups& make);

}  // namespace starling::c10d_engine

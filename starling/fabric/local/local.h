#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

struct LocalOptions {
  std::uint64_t memory_limit = std::uint64_t{64} << 30;  // bytes of unreleased messages per rank
  std::chrono::milliseconds join_timeout{60'000};
  /// Whether a rank has exited before it joined: the others then join without it. Unset: not known.
  std::function<bool(Rank)> exited{};
};

/// Joins `size` processes of this host, which all call this with the same `job`, a string unique to the job.
/// Returns when all ranks have joined, except for those that have exited, which are dead from the beginning.
/// Throws Error that names the missing ranks.
std::shared_ptr<Fabric> join_local(const std::string& job, Rank rank, Rank size,
                                   const LocalOptions& options = {});

/// The same fabric between threads of this process: element i belongs to rank i.
std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options = {});

}  // namespace starling::fabric

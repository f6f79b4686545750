#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling {

struct LocalOptions {
  std::uint64_t memory_limit = std::uint64_t{64} << 30;  // bytes of messages that a rank may have outstanding
  std::chrono::milliseconds join_timeout{60'000};
  /// Whether a rank that has not joined yet never will: the others then join without it. Unset: nobody knows.
  std::function<bool(Rank)> exited{};
};

/// Joins `size` processes of this host, which all call this with the same `job`, a word unique to the job;
/// returns when all are there that have not exited: those are lost from the beginning. Throws Error naming
/// the ranks that did not come.
std::shared_ptr<Fabric> join_local(const std::string& job, Rank rank, Rank size,
                                   const LocalOptions& options = {});

/// The same fabric between threads of this process, through the same memory: element i belongs to rank i.
std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options = {});

}  // namespace starling

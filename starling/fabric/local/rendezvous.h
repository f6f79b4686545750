#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/fabric/local/descriptor.h"

namespace starling::local {

/// What everybody has after the rendezvous, by rank.
struct Meeting {
  std::vector<Descriptor> regions;
  std::vector<Descriptor> processes;  // pidfds
};

/// What a rank does about others that never come.
struct Absence {
  std::function<bool(Rank)> exited;           // whether a rank has; unset: nobody knows
  std::function<Descriptor(Rank)> region_of;  // a region for it, as it would have left it
};

/// Every rank brings its region and its pidfd to rank 0 over an abstract socket and gets those of all ranks.
/// Descriptors move only between processes of the same user that have proved to each other that they know
/// `job`, whose hash is the socket's name: another user who guesses the name, or takes it first, gets
/// nothing. Throws Error that names the ranks that are missing, after the timeout, or who holds the name.
/// Ranks that have exited are not waited for: the lowest of the others takes the place of rank 0, and gives
/// everybody a region for those that have exited.
Meeting meet(const std::string& job, Rank rank, Rank size, int region, std::chrono::milliseconds timeout,
             const Absence& absence = {});

/// The name of the socket, without the leading zero byte.
std::string rendezvous_name(const std::string& job);

}  // namespace starling::local

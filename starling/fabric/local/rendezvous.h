#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::fabric::local {

/// The result of the rendezvous on every rank, by rank.
struct RendezvousResult {
  std::vector<Descriptor> regions;
  std::vector<Descriptor> processes;  // pidfds
};

/// Detects through pidfds which ranks' processes have died. Each process opens its own pidfd and sends it to
/// the others, so that this also works across PID namespaces, in which the same number means different
/// processes. Owned by the local fabric. Thread-safe.
class PeerProcesses {
 public:
  /// processes[r] is rank r's pidfd; empty for a rank of this process, which is not watched.
  explicit PeerProcesses(std::vector<Descriptor> processes) : processes_(std::move(processes)) {}

  /// One poll() call; a process that has ended, even as a zombie, is dead.
  bool dead(Rank rank) const;

  /// A pidfd of this process; empty, with errno set, on failure.
  static Descriptor open_own();

 private:
  std::vector<Descriptor> processes_;
};

/// How to treat ranks that exit before they join.
struct AbsentRanks {
  std::function<bool(Rank)> exited;           // whether a rank has exited; unset: not known
  std::function<Descriptor(Rank)> region_of;  // makes a region in the state in which a rank leaves it
};

/// Every rank sends its region and its pidfd to the coordinator (rank 0) over an abstract socket and receives
/// those of all ranks. Descriptors move only between processes of the same user that have proved to each
/// other that they know `job`; the socket's name is a hash of it. Another user who guesses the name, or binds
/// it first, gets nothing. Ranks that have exited are not waited for: the lowest remaining rank becomes the
/// coordinator and provides regions in their place. Throws Error after the timeout, naming the missing ranks
/// or the process that holds the name.
RendezvousResult run_rendezvous(const std::string& job, Rank rank, Rank size, int region,
                                std::chrono::milliseconds timeout, const AbsentRanks& absent = {});

/// The name of the abstract socket, without the leading zero byte.
std::string rendezvous_name(const std::string& job);

}  // namespace starling::fabric::local

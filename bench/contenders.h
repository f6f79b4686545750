#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/work.h"
#include "starling/base/median.h"
#include "starling/base/stopwatch.h"

// The contenders that `starling bench comm` compares.

namespace starling::bench {

enum class Contender {
  starling,           // the plain in-place call
  zero_copy,          // the outgoing memory is written by the caller
  ceiling,            // the same reads and writes as `starling`, on private memory, without waiting
  zero_copy_ceiling,  // the same for `zero_copy`
  mpi,
  gloo,  // its all-reduce, for every operation
};
inline constexpr std::size_t kContenders = 6;

std::string to_string(Contender contender);

/// Why the contender cannot run here, in a few words; empty if it can.
std::optional<std::string> missing(Contender contender);

/// Starts fresh processes, runs the work and returns the seconds per operation: the median over the batches.
/// Throws Error if they fail.
double seconds_per_operation(Contender contender, const Work& work);

/// idle_share: the processor time of a rank that waits for a sleeping peer, as a fraction of that time.
/// stopped_share: the median time of rank 0's window puts and updates while another rank is stopped, relative
/// to the usual time.
double stopped_share(double stop_seconds, const std::vector<int>& cpus);
double idle_share(double sleep_seconds, const std::vector<int>& cpus);

/// The duration of `starling run -n RANKS -- true`, in seconds.
double start_up_seconds(int ranks);

/// Whether processes may read each other's memory here; MPI then copies once instead of twice.
bool single_copy_allowed();

}  // namespace starling::bench

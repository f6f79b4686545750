#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/work.h"
#include "starling/base/median.h"
#include "starling/base/stopwatch.h"

// Everything that `starling bench comm` times against each other.

namespace starling::bench {

enum class Contender {
  starling,           // the plain in-place call
  zero_copy,          // the outgoing memory is written by the caller
  ceiling,            // what `starling` reads and writes, on private memory, without waiting for anybody
  zero_copy_ceiling,  // the same for `zero_copy`
  mpi,
  gloo,  // its all-reduce, whatever the operation
};
inline constexpr std::size_t kContenders = 6;

std::string to_string(Contender contender);

/// Why it cannot run here, in a few words; nothing when it can.
std::optional<std::string> missing(Contender contender);

/// Starts fresh processes, runs the work and returns the seconds of one operation: the median over the
/// batches. Throws Error when they fail.
double seconds_per_operation(Contender contender, const Work& work);

/// The processor time that a rank uses while it waits for a peer that sleeps, as a share of that time.
/// The median time of rank 0's window puts and updates while another rank is stopped, as a share of what it
/// is otherwise.
double stopped_share(double stop_seconds, const std::vector<int>& cpus);
double idle_share(double sleep_seconds, const std::vector<int>& cpus);

/// Seconds from nothing to the end of `starling run -n RANKS -- true`.
double start_up_seconds(int ranks);

/// Whether processes may read each other's memory here, which MPI then uses to copy once instead of twice.
bool single_copy_allowed();

}  // namespace starling::bench

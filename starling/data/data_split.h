#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "starling/data/partition.h"

namespace starling::data {

/// How samples are split among ranks, and in which order a rank goes through its part.
struct SplitOptions {
  std::string partition = "iid";  // iid, contiguous or dirichlet(alpha=0.1)
  std::uint64_t seed = 0;         // the same on every rank
  bool shuffle = true;            // in every epoch
  /// Ranks with fewer samples repeat some, so that all ranks take the same number of steps.
  bool even = true;
};

/// One rank's part of a data set. Ranks that construct the same split get disjoint parts without
/// communication.
class DataSplit {
 public:
  /// Throws InvalidArgument for an unknown partition, for a rank out of range and, with `even`, if a rank
  /// would get no samples.
  DataSplit(const Samples& samples, Rank rank, Rank size, SplitOptions options = {});

  /// The number of samples per epoch.
  std::size_t size() const { return size_; }
  /// The samples of an epoch in order, by their numbers in the data set: a pure function of (seed, epoch,
  /// rank).
  std::vector<std::uint32_t> order(std::int64_t epoch) const;

 private:
  SplitOptions options_;
  Rank rank_;
  Shard shard_;
  std::size_t size_ = 0;
};

}  // namespace starling::data

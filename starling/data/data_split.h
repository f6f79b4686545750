#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "starling/data/partition.h"

namespace starling::data {

/// How samples are split among ranks and in which order a rank goes through its part.
struct SplitOptions {
  std::string partition = "iid";  // iid, contiguous or dirichlet(alpha=0.1)
  std::uint64_t seed = 0;         // the same on every rank
  bool shuffle = true;            // in every epoch
  /// Ranks that have fewer samples than another repeat some, so that all take equally many steps.
  bool even = true;
};

/// One rank's part of a data set. Ranks that ask for the same split get parts that have no sample in common,
/// without talking to each other.
class DataSplit {
 public:
  /// Throws InvalidArgument for a partition or a rank that there is not, and, with `even`, where a rank would
  /// get nothing.
  DataSplit(const Samples& samples, Rank rank, Rank size, SplitOptions options = {});

  /// Samples per epoch.
  std::size_t size() const { return size_; }
  /// The samples of an epoch, by their number in the data set, in their order: a pure function of (seed,
  /// epoch, rank).
  std::vector<std::uint32_t> order(std::int64_t epoch) const;

 private:
  SplitOptions options_;
  Rank rank_;
  Shard shard_;
  std::size_t size_ = 0;
};

}  // namespace starling::data

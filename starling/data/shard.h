#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/base/random.h"
#include "starling/base/types.h"

namespace starling::data {

/// One worker's samples, by their numbers in the data set, ascending.
using Shard = std::vector<std::uint32_t>;

/// A Fisher-Yates shuffle, the same on every platform.
void shuffle(std::span<std::uint32_t> samples, Random& random);

/// Distributes the samples of dead ranks over the survivors, evenly and at random: every sample goes to
/// exactly one survivor, and shares differ by at most one. `dead` lists all ranks that are dead by now, not
/// only the last; their shards become empty. Equal arguments give equal results, so survivors need not
/// communicate: each computes the same from the original shards and the dead ranks of its view. Throws
/// InvalidArgument if a rank is out of range or listed twice, or if none is left.
std::vector<Shard> reshard(std::vector<Shard> shards, std::span<const Rank> dead, std::uint64_t seed = 0);
[[deprecated("call reshard")]] inline std::vector<Shard> deal_again(std::vector<Shard> shards,
                                                                    std::span<const Rank> dead,
                                                                    std::uint64_t seed = 0) {
  return reshard(std::move(shards), dead, seed);
}

/// The order in which a rank goes through its shard: reshuffled for every epoch by a pure function of (seed,
/// epoch, rank), so a checkpoint needs to store only the position.
///
///   ShardSampler sampler(shards[rank], rank, seed);
///   for (sampler.start(epoch); auto batch = sampler.next(32); !batch.empty(); batch = sampler.next(32))
///     ...
class ShardSampler {
 public:
  ShardSampler(Shard shard, Rank rank, std::uint64_t seed);

  /// Shuffles for the epoch, and skips its first `position` samples.
  void start(std::int64_t epoch, std::size_t position = 0);
  /// The next samples: fewer than `most` at the end of the epoch, none after it. Valid until `start`.
  std::span<const std::uint32_t> next(std::size_t most);

  /// Replaces the shard, from the next start() on; call it after reshard.
  void replace(Shard shard);

  /// How many batches next(size) returns in a whole epoch.
  std::size_t batches(std::size_t size) const;
  std::int64_t epoch() const { return epoch_; }
  std::size_t position() const { return position_; }
  const Shard& shard() const { return shard_; }

 private:
  Shard shard_;
  Rank rank_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  std::size_t position_ = 0;
  std::vector<std::uint32_t> order_;  // empty before the first start
};

}  // namespace starling::data

namespace starling {
using data::Shard;
using data::ShardSampler;
}  // namespace starling

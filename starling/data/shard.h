#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/base/random.h"
#include "starling/base/types.h"

namespace starling::data {

/// The samples of one worker, by their number in the data set, ascending.
using Shard = std::vector<std::uint32_t>;

/// Fisher and Yates, the same on every platform.
void shuffle(std::span<std::uint32_t> samples, Random& random);

/// Distributes the samples of dead ranks over the others, evenly and at random: every sample goes to exactly
/// one survivor, and shares differ by at most one. `dead` lists all ranks that are dead by now, not only the
/// last; their shards become empty. Equal arguments give equal results, so that survivors need not
/// communicate: each computes the same from the first shards and the dead ranks of its view. Throws
/// InvalidArgument if a rank is out of range or named twice, or if none is left.
std::vector<Shard> reshard(std::vector<Shard> shards, std::span<const Rank> dead, std::uint64_t seed = 0);
[[deprecated("call reshard")]] inline std::vector<Shard> deal_again(std::vector<Shard> shards,
                                                                    std::span<const Rank> dead,
                                                                    std::uint64_t seed = 0) {
  return reshard(std::move(shards), dead, seed);
}

/// The order in which a rank goes through its shard: reshuffled for every epoch, a pure function of
/// (seed, epoch, rank), so that a position is all that a checkpoint has to keep.
///
///     ShardSampler sampler(shards[rank], rank, seed);
///     for (sampler.start(epoch); auto batch = sampler.next(32); !batch.empty(); batch = sampler.next(32))
///     ...
class ShardSampler {
 public:
  ShardSampler(Shard shard, Rank rank, std::uint64_t seed);

  /// Shuffles, and goes on behind the first `position` samples of the epoch.
  void start(std::int64_t epoch, std::size_t position = 0);
  /// The next samples, fewer than `most` at the end of the epoch and none behind it. Valid until `start`.
  std::span<const std::uint32_t> next(std::size_t most);

  /// Another shard, from the next start() on: after reshard.
  void replace(Shard shard);

  /// How many times next(size) gives something in a whole epoch.
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

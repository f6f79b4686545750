#include "starling/data/data_split.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::data {

DataSplit::DataSplit(const Samples& samples, Rank rank, Rank size, SplitOptions options)
    : options_(std::move(options)), rank_(rank) {
  if (rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("rank {} is not one of the {} ranks 0..{}", rank, size, size - 1));
  std::vector<Shard> shards = samples.labels.empty()
                                  ? make_partition(options_.partition, samples.count, size, options_.seed)
                                  : make_partition(options_.partition, samples.labels, size, options_.seed);
  shard_ = std::move(shards[static_cast<std::size_t>(rank)]);
  size_ = shard_.size();
  if (!options_.even) return;
  for (std::size_t r = 0; r < shards.size(); ++r) {
    const std::size_t own = static_cast<Rank>(r) == rank ? shard_.size() : shards[r].size();
    if (own == 0)
      throw InvalidArgument(fmt::format("{} samples split among {} ranks by {} leave rank {} none",
                                        samples.count, size, options_.partition, r));
    size_ = std::max(size_, own);
  }
}

std::vector<std::uint32_t> DataSplit::order(std::int64_t epoch) const {
  std::vector<std::uint32_t> all = shard_;
  if (options_.shuffle) {
    ShardSampler sampler(shard_, rank_, options_.seed);
    sampler.start(epoch);
    const auto drawn = sampler.next(shard_.size());
    all.assign(drawn.begin(), drawn.end());
  }
  for (std::size_t again = 0; all.size() < size_; ++again) all.push_back(all[again]);
  return all;
}

}  // namespace starling::data

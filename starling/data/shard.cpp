#include "starling/data/shard.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::data {

void shuffle(std::span<std::uint32_t> samples, Random& random) {
  for (std::size_t left = samples.size(); left > 1; --left)
    std::swap(samples[left - 1], samples[random.below(static_cast<std::uint32_t>(left))]);
}

std::vector<Shard> reshard(std::vector<Shard> shards, std::span<const Rank> dead, std::uint64_t seed) {
  std::vector<bool> lives(shards.size(), true);
  for (const Rank rank : dead) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= shards.size())
      throw InvalidArgument(fmt::format("rank {} is not one of the {} ranks 0..{}", rank, shards.size(),
                                        static_cast<std::int64_t>(shards.size()) - 1));
    if (!lives[static_cast<std::size_t>(rank)])
      throw InvalidArgument(fmt::format("rank {} is named twice among the dead", rank));
    lives[static_cast<std::size_t>(rank)] = false;
  }
  if (std::find(lives.begin(), lives.end(), true) == lives.end())
    throw InvalidArgument(
        fmt::format("all {} ranks are dead: no rank is left to take their samples", shards.size()));
  Shard orphans;
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    if (!lives[rank]) {
      orphans.insert(orphans.end(), shards[rank].begin(), shards[rank].end());
      shards[rank].clear();
    }
  // At random, because the order in a file may mean something, such as one class after another.
  Random random(seed, orphans.size(), stream::kReshard);
  shuffle(orphans, random);
  for (std::size_t assigned = 0; assigned < orphans.size();)
    for (std::size_t rank = 0; rank < shards.size() && assigned < orphans.size(); ++rank)
      if (lives[rank]) shards[rank].push_back(orphans[assigned++]);
  for (Shard& shard : shards) std::sort(shard.begin(), shard.end());
  return shards;
}

ShardSampler::ShardSampler(Shard shard, Rank rank, std::uint64_t seed)
    : shard_(std::move(shard)), rank_(rank), seed_(seed) {
  if (rank < 0) throw InvalidArgument(fmt::format("rank {} is not a rank: they count from 0", rank));
}

void ShardSampler::start(std::int64_t epoch, std::size_t position) {
  if (epoch < 0 || epoch > INT32_MAX)
    throw InvalidArgument(fmt::format("epoch {} is not valid; expected 0 to {}", epoch, INT32_MAX));
  if (position > shard_.size())
    throw InvalidArgument(
        fmt::format("position {} is behind the end of a shard of {} samples", position, shard_.size()));
  order_ = shard_;
  const auto place = static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(rank_);
  Random random(seed_, place, stream::kEpochOrder);
  shuffle(order_, random);
  epoch_ = epoch;
  position_ = position;
}

std::span<const std::uint32_t> ShardSampler::next(std::size_t most) {
  const std::size_t count = std::min(most, order_.size() - std::min(position_, order_.size()));
  const auto batch = std::span<const std::uint32_t>(order_).subspan(position_, count);
  position_ += count;
  return batch;
}

void ShardSampler::replace(Shard shard) {
  shard_ = std::move(shard);
}

std::size_t ShardSampler::batches(std::size_t size) const {
  if (size == 0) throw InvalidArgument("a batch has at least one sample, not 0");
  return (shard_.size() + size - 1) / size;
}

}  // namespace starling::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/data/shard.h"

// Splitting samples among workers. Every sample goes to exactly one of n workers; equal arguments give equal
// shards on every machine.

namespace starling::data {

/// Splits at random; sizes differ by at most one.
std::vector<Shard> iid_partition(std::size_t count, Rank n, std::uint64_t seed);

/// How dirichlet_partition controls the sizes.
enum class ShardSize {
  at_least_half,  // redraws until the smallest shard has at least half of the average
  equal,          // sizes differ by at most one: the share of a full worker goes to the others
};

/// For each class, the workers' shares are drawn from a symmetric Dirichlet distribution; a worker that has
/// its fair share of samples gets no more. The lower alpha, the fewer classes a worker sees; a large alpha is
/// like iid. If there are more workers than classes, they are split into groups of equal size (up to one)
/// with at most as many workers as classes and an equal part of every class. Throws Error if no draw gives
/// every worker half of the average, as with classes of very different sizes and a small alpha; use
/// ShardSize::equal then.
std::vector<Shard> dirichlet_partition(std::span<const std::uint8_t> labels, Rank n, double alpha,
                                       std::uint64_t seed, ShardSize size = ShardSize::at_least_half);

/// Splits the data into contiguous pieces; sizes differ by at most one.
std::vector<Shard> contiguous_partition(std::size_t count, Rank n);

/// The samples to split.
struct Samples {
  std::size_t count = 0;
  std::span<const std::uint8_t> labels;  // empty if samples have no labels
};

/// A named way to split samples.
struct PartitionKind {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;  // besides seed=
  std::function<std::vector<Shard>(const Parameters&, const Samples&, Rank n)> make;
  bool is_drawn = true;       // random, so it takes seed=
  bool needs_labels = false;  // true: splits by class
  /// Throws InvalidArgument for values out of range; optional.
  std::function<void(const Parameters&)> check = nullptr;
};
const std::vector<PartitionKind>& partition_kinds();

/// The text with its seed filled in if it takes one, such as `dirichlet(alpha=0.1,seed=7)`: equal names mean
/// equal splits. A seed= in the text takes precedence. Throws InvalidArgument with what is valid.
std::string partition_name(std::string_view text, std::uint64_t seed);
/// The canonical spelling, equal for all texts of the same split: with the seed and all defaults.
std::string canonical_partition(std::string_view text, std::uint64_t seed);

/// Splits samples, as in `make_partition("dirichlet(alpha=0.1)", data.labels, 8, seed)`.
std::vector<Shard> make_partition(std::string_view text, std::span<const std::uint8_t> labels, Rank n,
                                  std::uint64_t seed);
/// Splits samples without labels; throws InvalidArgument for a partition that needs them.
std::vector<Shard> make_partition(std::string_view text, std::size_t count, Rank n, std::uint64_t seed);

}  // namespace starling::data

namespace starling {
using data::contiguous_partition;
using data::dirichlet_partition;
using data::iid_partition;
using data::make_partition;
using data::Samples;
}  // namespace starling

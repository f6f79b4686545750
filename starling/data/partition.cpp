#include "starling/data/partition.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/base/spec.h"

namespace starling::data {
namespace {

constexpr std::uint64_t kMostDraws = 20'000;
constexpr double kLeastAlpha = 1e-4;
constexpr double kMostAlpha = 1e6;

void check_workers(std::size_t count, Rank n) {
  if (n < 1) throw InvalidArgument(fmt::format("the number of workers must be at least 1, not n = {}", n));
  if (count < static_cast<std::size_t>(n))
    throw InvalidArgument(fmt::format("cannot partition {} samples among {} workers", count, n));
  if (count > UINT32_MAX) throw InvalidArgument(fmt::format("{} samples are more than 2^32 - 1", count));
}

// Marsaglia and Tsang's method, for shapes of at least 1. Smaller shapes use shape + 1 times a power of a
// uniform number, which is far below the smallest double for an alpha such as 0.01; hence the logarithm.
double log_gamma_draw(double shape, Random& random) {
  if (shape < 1) return log_gamma_draw(shape + 1, random) + std::log(1 - random.uniform()) / shape;
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

// Splits `count` in proportion to exp(weight) over the workers that have room, and adds the result to
// `given`.
void split(std::size_t count, const std::vector<double>& weights, const std::vector<bool>& has_room,
           std::vector<std::size_t>& given) {
  double most = -INFINITY;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (has_room[i]) most = std::max(most, weights[i]);
  std::vector<double> sums(weights.size());
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    sums[i] = sum += has_room[i] ? std::exp(weights[i] - most) : 0;
  std::size_t before = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // The last worker with room has the whole sum, so the last cut is `count` itself.
    const auto cut =
        sums[i] == sum ? count : static_cast<std::size_t>(sums[i] / sum * static_cast<double>(count));
    given[i] += cut - before;
    before = cut;
  }
}

using Shares = std::vector<std::vector<std::size_t>>;  // [class][worker]

// One draw by the original rule: full workers get no more, but the share before they were full may be large.
Shares draw_shares(const std::vector<std::size_t>& class_sizes, std::size_t n, std::size_t count,
                   double alpha, Random& random) {
  Shares shares;
  std::vector<std::size_t> sizes(n, 0);
  std::vector<double> weights(n);
  std::vector<bool> has_room(n);
  for (const std::size_t class_size : class_sizes) {
    auto& share = shares.emplace_back(n, 0);
    for (double& weight : weights) weight = log_gamma_draw(alpha, random);
    if (class_size == 0) continue;
    for (std::size_t i = 0; i < n; ++i) has_room[i] = sizes[i] * n < count;
    split(class_size, weights, has_room, share);
    for (std::size_t i = 0; i < n; ++i) sizes[i] += share[i];
  }
  return shares;
}

// One draw with a limit per worker; the rest is split again among workers below the limit.
Shares draw_equal_shares(const std::vector<std::size_t>& class_sizes, std::size_t n, std::size_t count,
                         double alpha, Random& random) {
  Shares shares;
  std::vector<std::size_t> room(n);
  for (std::size_t i = 0; i < n; ++i) room[i] = count / n + (i < count % n ? 1 : 0);
  std::vector<double> weights(n);
  std::vector<bool> has_room(n);
  for (const std::size_t class_size : class_sizes) {
    auto& share = shares.emplace_back(n, 0);
    for (double& weight : weights) weight = log_gamma_draw(alpha, random);
    for (std::size_t left = class_size; left > 0;) {
      for (std::size_t i = 0; i < n; ++i) has_room[i] = room[i] > 0;
      std::vector<std::size_t> more(n, 0);
      split(left, weights, has_room, more);
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t taken = std::min(more[i], room[i]);
        share[i] += taken;
        room[i] -= taken;
        left -= taken;
      }
    }
  }
  return shares;
}

std::size_t smallest_shard(const Shares& shares, std::size_t n) {
  std::size_t smallest = SIZE_MAX;
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t size = 0;
    for (const auto& share : shares) size += share[i];
    smallest = std::min(smallest, size);
  }
  return smallest;
}

// Draws until every worker has at least half of the average. Each group has its own random stream.
Shares draw_until_fair(const std::vector<std::size_t>& class_sizes, std::size_t n, double alpha,
                       std::uint64_t seed, std::uint64_t group) {
  const std::size_t count = std::accumulate(class_sizes.begin(), class_sizes.end(), std::size_t{0});
  for (std::uint64_t draw = 1; draw <= kMostDraws; ++draw) {
    Random random(seed, group * kMostDraws + draw, stream::kPartition);
    Shares shares = draw_shares(class_sizes, n, count, alpha, random);
    if (2 * n * smallest_shard(shares, n) >= count) return shares;
  }
  throw Error(fmt::format(
      "dirichlet(alpha={}): in {} draws, no split of {} samples of {} classes over {} workers gave "
      "each worker half of the average; take a larger alpha, fewer workers, or equal=yes",
      alpha, kMostDraws, count, class_sizes.size(), n));
}

// If there are more workers than classes, not all can have a fair share of only a few classes each. So they
// are split into groups with at most as many workers as classes, and each group gets its part of every class.
Shares draw_in_groups(const std::vector<std::size_t>& class_sizes, std::size_t n, double alpha,
                      std::uint64_t seed) {
  const std::size_t groups = (n + class_sizes.size() - 1) / class_sizes.size();
  Shares shares(class_sizes.size());
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t first = n * group / groups;
    const std::size_t last = n * (group + 1) / groups;
    std::vector<std::size_t> sizes;
    for (const std::size_t size : class_sizes) sizes.push_back(size * last / n - size * first / n);
    const Shares drawn = draw_until_fair(sizes, last - first, alpha, seed, group);
    for (std::size_t c = 0; c < shares.size(); ++c)
      shares[c].insert(shares[c].end(), drawn[c].begin(), drawn[c].end());
  }
  return shares;
}

const PartitionKind& find_kind(const Spec& spec) {
  std::vector<std::string> names;
  for (const PartitionKind& kind : partition_kinds()) {
    if (!spec.is_list && kind.name == spec.word) return kind;
    names.push_back(kind.name);
  }
  throw InvalidArgument(
      fmt::format("unknown partition '{}'; valid are {}", spec.to_string(), join_words(names)));
}

Parameters read_parameters(const Spec& spec, const PartitionKind& kind, std::uint64_t seed) {
  auto declared = kind.parameters;
  if (kind.is_drawn) declared.push_back({"seed", std::to_string(seed), "of the draws"});
  return {spec, declared};
}

// Cuts the samples, in this order, into n pieces.
std::vector<Shard> cut(const std::vector<std::uint32_t>& samples, Rank n) {
  std::vector<Shard> shards;
  auto begin = samples.begin();
  const auto workers = static_cast<std::size_t>(n);
  for (std::size_t i = 0; i < workers; ++i) {
    const std::size_t size = samples.size() / workers + (i < samples.size() % workers ? 1 : 0);
    const auto end = begin + static_cast<std::ptrdiff_t>(size);
    shards.emplace_back(begin, end);
    std::sort(shards.back().begin(), shards.back().end());
    begin = end;
  }
  return shards;
}

std::vector<std::uint32_t> all_samples(std::size_t count) {
  std::vector<std::uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), 0U);
  return samples;
}

double alpha_of(const Parameters& parameters) {
  return parameters.number("alpha", kLeastAlpha, kMostAlpha);
}
ShardSize size_of_shards(const Parameters& parameters) {
  return parameters.yes("equal") ? ShardSize::equal : ShardSize::at_least_half;
}

}  // namespace

std::vector<Shard> iid_partition(std::size_t count, Rank n, std::uint64_t seed) {
  check_workers(count, n);
  std::vector<std::uint32_t> samples = all_samples(count);
  Random random(seed, 0, stream::kPartition);
  shuffle(samples, random);
  return cut(samples, n);
}

std::vector<Shard> contiguous_partition(std::size_t count, Rank n) {
  check_workers(count, n);
  return cut(all_samples(count), n);
}

std::vector<Shard> dirichlet_partition(std::span<const std::uint8_t> labels, Rank n, double alpha,
                                       std::uint64_t seed, ShardSize size) {
  check_workers(labels.size(), n);
  if (!(alpha >= kLeastAlpha && alpha <= kMostAlpha))
    throw InvalidArgument(
        fmt::format("dirichlet: alpha={} is not valid; expected {} to {}", alpha, kLeastAlpha, kMostAlpha));
  const std::size_t count = labels.size();
  const auto workers = static_cast<std::size_t>(n);
  std::vector<std::vector<std::uint32_t>> classes(256);
  for (std::size_t i = 0; i < count; ++i) classes[labels[i]].push_back(static_cast<std::uint32_t>(i));
  std::erase_if(classes, [](const auto& samples) { return samples.empty(); });
  std::vector<std::size_t> class_sizes;
  for (const auto& samples : classes) class_sizes.push_back(samples.size());

  Shares shares;
  if (size == ShardSize::equal) {
    Random random(seed, 1, stream::kPartition);
    shares = draw_equal_shares(class_sizes, workers, count, alpha, random);
  } else {
    shares = draw_in_groups(class_sizes, workers, alpha, seed);
  }

  std::vector<Shard> shards(workers);
  Random order(seed, 0, stream::kPartition);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    shuffle(classes[c], order);
    auto begin = classes[c].begin();
    for (std::size_t i = 0; i < workers; ++i) {
      const auto end = begin + static_cast<std::ptrdiff_t>(shares[c][i]);
      shards[i].insert(shards[i].end(), begin, end);
      begin = end;
    }
  }
  for (Shard& shard : shards) std::sort(shard.begin(), shard.end());
  return shards;
}

const std::vector<PartitionKind>& partition_kinds() {
  static const std::vector<PartitionKind> kinds = {
      {"iid",
       "at random, equal sizes",
       {},
       [](const Parameters& parameters, const Samples& samples, Rank n) {
         return iid_partition(samples.count, n, parameters.seed());
       }},
      {"contiguous",
       "pieces of equal size, in the order of the data",
       {},
       [](const Parameters&, const Samples& samples, Rank n) {
         return contiguous_partition(samples.count, n);
       },
       /*is_drawn=*/false},
      {"dirichlet",
       "classes spread unequally; the smaller alpha, the more so",
       {{"alpha", "", "how even: 100 is like iid, 0.01 is a class or two per worker"},
        {"equal", "no", "shards of equal size"}},
       [](const Parameters& parameters, const Samples& samples, Rank n) {
         return dirichlet_partition(samples.labels, n, alpha_of(parameters), parameters.seed(),
                                    size_of_shards(parameters));
       },
       /*is_drawn=*/true,
       /*needs_labels=*/true,
       [](const Parameters& parameters) {
         alpha_of(parameters);
         size_of_shards(parameters);
       }}};
  return kinds;
}

std::string partition_name(std::string_view text, std::uint64_t seed) {
  Spec spec = parse_spec(text);
  const PartitionKind& kind = find_kind(spec);
  const Parameters parameters = read_parameters(spec, kind, seed);
  if (kind.is_drawn && !parameters.given("seed"))
    spec.arguments.push_back({"seed", Spec{std::to_string(seed), false, {}}});
  return spec.to_string();
}

std::string canonical_partition(std::string_view text, std::uint64_t seed) {
  const Spec spec = parse_spec(partition_name(text, seed));
  const PartitionKind& kind = find_kind(spec);
  const Parameters parameters = read_parameters(spec, kind, seed);
  if (kind.check) kind.check(parameters);
  return parameters.canonical().to_string();
}

std::vector<Shard> make_partition(std::string_view text, std::span<const std::uint8_t> labels, Rank n,
                                  std::uint64_t seed) {
  const Spec spec = parse_spec(text);
  const PartitionKind& kind = find_kind(spec);
  return kind.make(read_parameters(spec, kind, seed), {labels.size(), labels}, n);
}

std::vector<Shard> make_partition(std::string_view text, std::size_t count, Rank n, std::uint64_t seed) {
  const Spec spec = parse_spec(text);
  const PartitionKind& kind = find_kind(spec);
  if (!kind.needs_labels) return kind.make(read_parameters(spec, kind, seed), {count, {}}, n);
  std::vector<std::string> names;
  for (const PartitionKind& other : partition_kinds())
    if (!other.needs_labels) names.push_back(other.name);
  throw InvalidArgument(fmt::format("{} splits by class, and these samples have none; valid are {}",
                                    kind.name, join_words(names)));
}

}  // namespace starling::data

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <type_traits>
#include <vector>

#include "flock/flock_fixture.h"
#include "starling/topology/schedule.h"

// Computes expected results of operations by a slow, direct method: every rank generates the inputs of all
// ranks.

namespace starling::flock {

/// Calls f(std::type_identity<E>{}) for the element types.
template <typename F>
void for_floating_types(const F& f) {
  f(std::type_identity<double>{});
  f(std::type_identity<float>{});
  f(std::type_identity<Half>{});
  f(std::type_identity<BFloat16>{});
}
template <typename F>
void for_integer_types(const F& f) {
  f(std::type_identity<std::int64_t>{});
  f(std::type_identity<std::int32_t>{});
  f(std::type_identity<std::int16_t>{});
  f(std::type_identity<std::int8_t>{});
  f(std::type_identity<std::uint8_t>{});
}
template <typename F>
void for_all_types(const F& f) {
  for_floating_types(f);
  for_integer_types(f);
}

constexpr std::uint64_t scrambled(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 29)) * 0xBF58476D1CE4E5B9u;
  return value ^ (value >> 32);
}

/// Element i of `rank`'s input; `round` makes inputs different. Floating values lie between -4 and 4,
/// integers use their whole range.
template <typename E>
E start_element(Rank rank, std::size_t i, std::uint64_t round = 0) {
  const std::uint64_t random =
      scrambled((round * 64 + static_cast<std::uint64_t>(rank)) * 0x100000001B3u + i);
  if constexpr (!is_floating_element<E>) return static_cast<E>(random);
  const double value = static_cast<double>(random >> 11) * 0x1p-50 - 4;
  if constexpr (std::is_same_v<E, double>) return value;
  return static_cast<E>(static_cast<float>(value));
}
template <typename E>
std::vector<E> start_block(Rank rank, std::size_t count, std::uint64_t round = 0) {
  std::vector<E> block(count);
  for (std::size_t i = 0; i < count; ++i) block[i] = start_element<E>(rank, i, round);
  return block;
}

/// Compares bits, so that -0.0 differs from 0.0 and a NaN equals itself.
template <typename E>
bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0);
}

/// A weighted sum in float64 that also bounds the error of a correct result.
struct ExactSum {
  double value = 0;
  double magnitude = 0;  // of the summands
  int summands = 0;

  void add(double weight, double x) {
    value += weight * x;
    magnitude += std::abs(weight * x);
    ++summands;
  }
};

/// Half the relative distance between neighboring numbers: the largest error of one rounding to nearest.
template <typename E>
constexpr double rounding_of() {
  if constexpr (std::is_same_v<E, double>) return 0x1p-53;
  if constexpr (std::is_same_v<E, float>) return 0x1p-24;
  if constexpr (std::is_same_v<E, Half>) return 0x1p-11;
  return 0x1p-8;
}

/// Sums are accumulated in float64 (float32 for shorter types) and rounded once to E at the end; `between` is
/// the number of messages that were rounded to E before.
template <typename E, typename What>
void require_sum(E result, const ExactSum& exact, int between, const What& what) {
  const double accumulating = std::is_same_v<E, double> ? 0x1p-53 : 0x1p-24;
  const double allowed = rounding_of<E>() * (std::abs(exact.value) + between * exact.magnitude) +
                         2 * (exact.summands + 1) * accumulating * exact.magnitude +
                         (std::is_same_v<E, Half> ? 0x1p-25 : 0);
  const double difference = std::abs(static_cast<double>(result) - exact.value);
  if (!(difference <= allowed))
    throw Error(fmt::format("{} ({}): {} instead of {}, off by {}, allowed {}", what(), name(dtype_of<E>),
                            static_cast<double>(result), exact.value, difference, allowed));
}

/// Ranks and the weights of their values.
using Shares = std::vector<std::pair<Rank, double>>;

/// One step of a schedule, straight from its definition: the group's mean, then the weighted sum.
inline Shares shares_of(const Schedule& schedule, Step step, Rank rank) {
  Shares shares;
  const auto add_mean_at = [&](Rank where, double weight) {
    const Group group = schedule.exchange(step, where).group;
    if (group.size() < 2) shares.emplace_back(where, weight);
    for (std::int64_t i = 0; group.size() >= 2 && i < group.size(); ++i)
      shares.emplace_back(group[i], weight / static_cast<double>(group.size()));
  };
  const Exchange exchange = schedule.exchange(step, rank);
  add_mean_at(rank, exchange.self_weight);
  for (const Source& source : exchange.sources) add_mean_at(source.rank, source.weight);
  return shares;
}

/// Checks a result whose inputs were start_block(rank, count, round).
template <typename E>
void require_shares(const std::vector<E>& result, const Shares& shares, std::size_t count,
                    std::uint64_t round, int between, const std::string& what) {
  require(result.size() == count, what + ": size");
  for (std::size_t i = 0; i < count; ++i) {
    ExactSum exact;
    for (const auto& [rank, weight] : shares)
      exact.add(weight, static_cast<double>(start_element<E>(rank, i, round)));
    require_sum(result[i], exact, between,
                [&] { return fmt::format("{}, element {} of {}", what, i, count); });
  }
}

/// The same after one step of a schedule.
template <typename E>
void require_step(const Schedule& schedule, Step step, Rank rank, const std::vector<E>& result,
                  std::size_t count, std::uint64_t round, const std::string& what) {
  const int between = schedule.exchange(step, rank).group.size() > 1 ? 1 : 0;
  require_shares(result, shares_of(schedule, step, rank), count, round, between,
                 fmt::format("{} step {}", what, step));
}

/// Requires that all ranks hold the same bits; this is a collective itself.
template <typename E>
void require_same_everywhere(Flock& flock, const std::vector<E>& block, const std::string& what) {
  std::uint64_t hash = 0;
  for (const E& element : block) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof(E));
    hash = scrambled(hash ^ bits) + 1;
  }
  for (const std::int64_t other : flock.allgather(std::vector{static_cast<std::int64_t>(hash)}, "same bits"))
    require(other == static_cast<std::int64_t>(hash), what + ": not the same bits on every rank");
}

}  // namespace starling::flock

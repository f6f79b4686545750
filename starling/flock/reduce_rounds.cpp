#include "starling/flock/reduce_rounds.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::flock {
namespace {

using ReduceRounds = std::vector<ReduceRound>;

constexpr AllreduceAlgorithm kAlgorithms[] = {AllreduceAlgorithm::direct,   AllreduceAlgorithm::ring,
                                              AllreduceAlgorithm::doubling, AllreduceAlgorithm::halving,
                                              AllreduceAlgorithm::tree,     AllreduceAlgorithm::native};

std::size_t cut(std::size_t count, std::size_t part, std::size_t parts) {
  return count * part / parts;
}

ReduceRounds ring(std::size_t place, std::size_t n, std::size_t count) {
  ReduceRounds rounds;
  const std::size_t right = (place + 1) % n;
  const std::size_t left = (place + n - 1) % n;
  const auto slice = [&](std::size_t peer, std::size_t part) {
    part %= n;
    return ReduceRound::Transfer{peer, cut(count, part, n), cut(count, part + 1, n)};
  };
  for (std::size_t s = 0; s + 1 < n; ++s) {
    ReduceRound::Transfer in = slice(left, place + 2 * n - s - 1);
    in.add = true;
    in.theirs = s + 1;
    in.mine = 1;
    rounds.push_back({{slice(right, place + n - s)}, {in}});
  }
  for (std::size_t s = 0; s + 1 < n; ++s)
    rounds.push_back({{slice(right, place + 1 + n - s)}, {slice(left, place + n - s)}});
  return rounds;
}

/// The number of members from `first` on, `span` of them and those folded onto them.
std::size_t folded_members(std::size_t first, std::size_t span, std::size_t rest) {
  return span + (rest > first ? std::min(rest - first, span) : 0);
}

// Members beyond a power of two send their blocks to the first members before the rounds, and get the result
// afterwards.
template <typename FlockState>
ReduceRounds folded(std::size_t place, std::size_t n, std::size_t count, const FlockState& flock) {
  const std::size_t p = std::bit_floor(n);
  const std::size_t rest = n - p;
  ReduceRounds rounds;
  if (place >= p) return {{{{place - p, 0, count}}, {}}, {{}, {{place - p, 0, count, false}}}};
  if (place < rest) rounds.push_back({{}, {{place + p, 0, count, true, 1, 1}}});
  flock(p, rounds);
  if (place < rest) rounds.push_back({{{place + p, 0, count}}, {}});
  return rounds;
}

ReduceRounds doubling(std::size_t place, std::size_t n, std::size_t count) {
  return folded(place, n, count, [&](std::size_t p, ReduceRounds& rounds) {
    for (std::size_t bit = 1; bit < p; bit *= 2) {
      const std::size_t first = place & ~(bit - 1);
      rounds.push_back({{{place ^ bit, 0, count}},
                        {{place ^ bit, 0, count, true, folded_members(first ^ bit, bit, n - p),
                          folded_members(first, bit, n - p)}}});
    }
  });
}

ReduceRounds halving(std::size_t place, std::size_t n, std::size_t count) {
  return folded(place, n, count, [&](std::size_t p, ReduceRounds& rounds) {
    // This member reduces parts [low, high) of p; in each round it gives one half away.
    std::size_t low = 0;
    std::size_t high = p;
    std::vector<std::pair<std::size_t, std::size_t>> kept = {{low, high}};
    // The number of members whose blocks are in this member's elements: those whose index agrees with its own
    // in the low bits.
    const auto members_like = [&](std::size_t like, std::size_t apart) {
      std::size_t members = 0;
      for (std::size_t q = like % apart; q < p; q += apart) members += q < n - p ? 2 : 1;
      return members;
    };
    for (std::size_t bit = p / 2; bit >= 1; bit /= 2) {
      const std::size_t middle = (low + high) / 2;
      const bool upper = (place & bit) != 0;
      const auto [mine_low, mine_high] = upper ? std::pair{middle, high} : std::pair{low, middle};
      const auto [give_low, give_high] = upper ? std::pair{low, middle} : std::pair{middle, high};
      rounds.push_back({{{place ^ bit, cut(count, give_low, p), cut(count, give_high, p)}},
                        {{place ^ bit, cut(count, mine_low, p), cut(count, mine_high, p), true,
                          members_like(place ^ bit, 2 * bit), members_like(place, 2 * bit)}}});
      low = mine_low;
      high = mine_high;
      kept.emplace_back(low, high);
    }
    // The way back: the reduced parts spread over the same halves.
    for (std::size_t bit = 1; bit < p; bit *= 2) {
      const auto mine = kept.back();
      kept.pop_back();
      const auto whole = kept.back();
      const auto other = mine.first == whole.first ? std::pair{mine.second, whole.second}
                                                   : std::pair{whole.first, mine.first};
      rounds.push_back({{{place ^ bit, cut(count, mine.first, p), cut(count, mine.second, p)}},
                        {{place ^ bit, cut(count, other.first, p), cut(count, other.second, p), false}}});
    }
  });
}

// A binomial tree rooted at the first member.
ReduceRounds tree(std::size_t place, std::size_t n, std::size_t count) {
  ReduceRounds rounds;
  std::size_t bit = 1;
  for (; bit < n; bit *= 2) {
    if ((place & bit) != 0) {
      rounds.push_back({{{place - bit, 0, count}}, {}});
      rounds.push_back({{}, {{place - bit, 0, count, false}}});
      break;
    }
    if (place + bit < n)
      rounds.push_back({{}, {{place + bit, 0, count, true, std::min(bit, n - place - bit), bit}}});
  }
  for (bit /= 2; bit >= 1; bit /= 2)
    if (place + bit < n) rounds.push_back({{{place + bit, 0, count}}, {}});
  return rounds;
}

}  // namespace

std::string name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::direct:
      return "direct";
    case AllreduceAlgorithm::ring:
      return "ring";
    case AllreduceAlgorithm::doubling:
      return "doubling";
    case AllreduceAlgorithm::halving:
      return "halving";
    case AllreduceAlgorithm::tree:
      return "tree";
    case AllreduceAlgorithm::native:
      return "native";
  }
  return "algorithm " + std::to_string(static_cast<int>(algorithm));
}

AllreduceAlgorithm parse_allreduce_algorithm(std::string_view text) {
  std::vector<std::string> names;
  for (const AllreduceAlgorithm algorithm : kAlgorithms) {
    if (name(algorithm) == text) return algorithm;
    names.push_back(name(algorithm));
  }
  throw InvalidArgument(
      fmt::format("unknown all-reduce algorithm '{}'; valid are {}", text, join_words(names)));
}

std::vector<ReduceRound> reduce_rounds(AllreduceAlgorithm algorithm, std::size_t place, std::size_t n,
                                       std::size_t count) {
  if (n == 1) return {};
  switch (algorithm) {
    case AllreduceAlgorithm::ring:
      return ring(place, n, count);
    case AllreduceAlgorithm::doubling:
      return doubling(place, n, count);
    case AllreduceAlgorithm::halving:
      return halving(place, n, count);
    case AllreduceAlgorithm::tree:
      return tree(place, n, count);
    case AllreduceAlgorithm::direct:
    case AllreduceAlgorithm::native:
      break;
  }
  throw InvalidArgument(fmt::format("the all-reduce algorithm {} does not run in rounds", name(algorithm)));
}

}  // namespace starling::flock

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "starling/base/types.h"

namespace starling::topology {

/// Which of a rank's blocks an edge carries. All families but CECA have only block `a`.
enum class Lane : std::uint8_t { a, b };

/// A rank from which a rank receives, with the weight of the received block.
struct Source {
  Rank rank = 0;
  Lane lane = Lane::a;
  double weight = 0;    // into block a
  double weight_b = 0;  // into block b, for two-block schedules
};

/// A rank to which a rank sends.
struct Destination {
  Rank rank = 0;
  Lane lane = Lane::a;
  double scale = 1;  // of the sent block
};

/// A set of ranks, empty or at least two, in O(1) memory: first + stride * i + j for i < count and j < block,
/// mapped through `members` if given.
struct Group {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 0;
  std::int64_t block = 1;
  std::shared_ptr<const std::vector<Rank>> members;  // ascending

  std::int64_t size() const { return count * block; }
  /// The i-th member, in ascending order where stride >= block.
  Rank operator[](std::int64_t i) const;
};

/// The communication of ONE rank in ONE step. First, if `group` has members, x becomes the mean over the
/// group (a collective); then x <- self_weight * x + sum over sources of weight * (the source's x after its
/// own group mean). Two-block schedules (CECA) update b in the same way with self_weight_b and weight_b.
struct Exchange {
  double self_weight = 1;
  double self_weight_b = 0;
  Group group;
  std::vector<Source> sources;
  std::vector<Destination> destinations;

  /// Resets to "no communication" but keeps the memory, so that a reused Exchange soon allocates nothing.
  void clear();
  /// Adds a rank that is not a source yet; otherwise call `add_source_weight`.
  void add_source(Rank rank, double weight) { sources.push_back({rank, Lane::a, weight, 0}); }
  /// Adds a source, or adds to its weight if the rank is a source already.
  void add_source_weight(Rank rank, double weight);
  void add_destination(Rank rank, double scale = 1) { destinations.push_back({rank, Lane::a, scale}); }
  /// Adds `rank` as source and destination, with the same weight.
  void add_pair(Rank rank, double weight) {
    add_source(rank, weight);
    add_destination(rank);
  }
  [[deprecated("call add_source")]] void hear(Rank rank, double weight) { add_source(rank, weight); }
  [[deprecated("call add_source_weight")]] void hear_again(Rank rank, double weight) {
    add_source_weight(rank, weight);
  }
  [[deprecated("call add_destination")]] void tell(Rank rank, double scale = 1) {
    add_destination(rank, scale);
  }
  [[deprecated("call add_pair")]] void meet(Rank rank, double weight) { add_pair(rank, weight); }
};

/// The exchange of rank `self` with the group's mean expanded into weights of single ranks.
Exchange flattened(Exchange exchange, Rank self);

}  // namespace starling::topology

namespace starling {
using topology::Destination;
using topology::Exchange;
using topology::Group;
using topology::Source;
}  // namespace starling

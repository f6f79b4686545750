#pragma once

#include <cstdint>
#include <vector>

#include "starling/base/types.h"

namespace starling::simulate {

/// A message of b bytes takes latency + b * seconds_per_byte.
struct ModelledLink {
  double latency = 50e-6;
  double seconds_per_byte = 0.8e-9;  // 10 Gbit/s
};

/// Overrides the model's link between some nodes; an empty list means all nodes.
struct LinkRule {
  std::vector<Rank> from, to;  // ascending
  ModelledLink link;
};

/// Nodes that take longer in some steps: in every `every`-th step (counted from 1), or at random.
struct Straggler {
  std::vector<Rank> nodes;  // ascending; empty: all
  Step every = 1;
  double probability = 1;
  double factor = 1;
  double extra = 0;  // seconds, after the factor
};

/// The durations on the modeled machines; a pure function of its arguments.
struct TimeModel {
  double compute = 1e-3;           // seconds per gradient
  std::vector<double> compute_of;  // by node; nodes beyond its end take `compute`
  ModelledLink link;
  Rank ranks_per_host = 1;                // consecutive nodes; links inside a host are `inside`
  ModelledLink inside = {1e-6, 0.08e-9};  // 100 Gbit/s
  std::vector<LinkRule> rules;            // the last matching rule counts, and overrides `inside`
  std::vector<Straggler> stragglers;      // all that match apply, in order
  std::uint64_t seed = 0;

  double compute_seconds(Rank node, Step step) const;
  double latency(Rank from, Rank to) const { return link_between(from, to).latency; }
  double seconds_per_byte(Rank from, Rank to) const { return link_between(from, to).seconds_per_byte; }
  const ModelledLink& link_between(Rank from, Rank to) const;
};

}  // namespace starling::simulate

namespace starling {
using simulate::LinkRule;
using simulate::Straggler;
using simulate::TimeModel;
}  // namespace starling

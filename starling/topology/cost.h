#pragma once

#include "starling/topology/schedule.h"

namespace starling::topology {

/// The speed of a link.
struct LinkModel {
  double bandwidth = 1.25e9;  // bytes per second; 10 Gbit/s
  double latency = 50e-6;     // seconds
};

/// The cost of one step for the busiest rank, averaged over the rounds of a period: time = models * M / B +
/// latencies * L for model size M, bandwidth B and latency L.
struct StepCost {
  double models = 0;     // message sizes M through the busiest rank's link
  double latencies = 0;  // message starts that follow one another
  double messages = 0;   // of size M, sent by the whole flock
  Rank peers = 0;        // most peers that a rank exchanges with in a round

  double seconds(double message_bytes, const LinkModel& link) const {
    return models * message_bytes / link.bandwidth + latencies * link.latency;
  }
};

/// Computes the cost. Point-to-point messages of a round start together; a mean over g ranks is a ring
/// all-reduce: 2 (g-1)/g M in 2 (g-1) messages. Averages over `rounds` rounds from step 0.
StepCost step_cost(const Schedule& schedule, Step rounds);

/// The two centralized baselines: a parameter server, whose one link all ranks share, and a ring all-reduce.
StepCost parameter_server_cost(Rank n);
StepCost ring_allreduce_cost(Rank n);

}  // namespace starling::topology

namespace starling {
using topology::LinkModel;
using topology::step_cost;
using topology::StepCost;
}  // namespace starling

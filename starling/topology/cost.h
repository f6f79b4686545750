#pragma once

#include "starling/topology/schedule.h"

namespace starling::topology {

/// A link: seconds per byte and per message.
struct LinkModel {
  double bandwidth = 1.25e9;  // bytes per second; 10 Gbit/s
  double latency = 50e-6;     // seconds
};

/// What one step costs the busiest rank, averaged over the rounds of a period: time = models * M / B +
/// latencies * L.
struct StepCost {
  double models = 0;     // message sizes M through the busiest rank's link
  double latencies = 0;  // message starts one after another
  double messages = 0;   // of size M, sent by the whole flock
  Rank peers = 0;        // most peers that a rank exchanges with in a round

  double seconds(double message_bytes, const LinkModel& link) const {
    return models * message_bytes / link.bandwidth + latencies * link.latency;
  }
};

/// Point-to-point messages of a round start together; a mean over g ranks runs as a ring all-reduce: 2
/// (g-1)/g M in 2 (g-1) messages. `rounds` says how many rounds from step 0 to average over.
StepCost step_cost(const Schedule& schedule, Step rounds);

/// The two centralized baselines: all ranks through one server's link, and a ring all-reduce.
StepCost parameter_server_cost(Rank n);
StepCost ring_allreduce_cost(Rank n);

}  // namespace starling::topology

namespace starling {
using topology::LinkModel;
using topology::step_cost;
using topology::StepCost;
}  // namespace starling

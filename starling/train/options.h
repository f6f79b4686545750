#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "starling/topology/schedule.h"

namespace starling {

/// How a Trainer trains. Every rank gives the same: they are compared when the trainer is made.
struct TrainerOptions {
  std::string method = "dsgd-awc";
  /// Who averages with whom, by name. Empty: the flock's own schedule where the program has set one
  /// (Flock::set_schedule), else one-peer-exponential. "flock": the flock's own, set or not.
  std::string topology{};
  std::uint64_t seed = 0;  // of random topologies
  /// A schedule of the program's own in place of the topology.
  SchedulePtr schedule = nullptr;

  /// Parameters travel in buckets of at least so many megabytes, in the order backward produces their
  /// gradients.
  double bucket_mb = 4;
  /// What averages travel as: float32, float16, bfloat16 or int8. Parameters and optimizers stay in float32.
  std::string message = "float32";

  /// Calls of backward() per step(), of which only the last one communicates. 0: any number; methods that
  /// average gradients then do so in each.
  int accumulation = 1;
  /// Gradients longer than this (all of them as one vector, in the 2-norm) are scaled down to it; 0: never.
  double clip_norm = 0;
  /// Updates each bucket inside backward, as soon as its gradients are complete, and sends it on. No
  /// clipping, no loss scaling.
  bool eager = false;
  /// What scale() multiplies losses by at first; 0: no scaling. A step whose gradients overflow is skipped
  /// and halves it, 2000 good steps in a row double it.
  double loss_scale = 0;
  /// A gradient of this rank is infinite or not a number: "raise" NonFinite before it is sent, "skip" this
  /// rank's update (gradients then travel in step(), not during backward), or "ignore" it. Overflows of
  /// loss_scale are skipped anyway.
  std::string on_nonfinite = "raise";

  /// Buffers (batch-norm statistics) are every rank's own in training. In global_average() they are averaged,
  /// "broadcast" from rank 0, or stay "local".
  std::string buffers = "average";

  /// "raise": who needs a dead rank throws PeerLost; "reweight": training goes on among the survivors.
  std::string on_peer_failure = "raise";
  /// Everybody starts with rank 0's parameters and buffers.
  bool broadcast_at_start = true;
  /// Ranks may have optimizer settings (learning rates, momentum, ...) and a clip_norm of their own.
  /// Otherwise these are compared when the trainer is made and again while they change in training.
  bool per_rank_settings = false;
  /// Called at the end of every backward pass that has computed gradients.
  std::function<void()> after_backward = nullptr;
  /// Tells trainers of one flock apart that live at the same time.
  std::string name = "trainer";
};

}  // namespace starling

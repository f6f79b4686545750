#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "starling/base/dtype.h"
#include "starling/flock/flock.h"
#include "starling/method/defaults.h"
#include "starling/topology/schedule.h"

namespace starling::train {

/// How a Trainer trains. Every rank passes the same options: they are compared when the trainer is made.
struct TrainerOptions {
  std::string method = kDefaultMethod;
  /// The topology by name. Empty: the flock's own schedule if the program has set one
  /// (Flock::set_schedule), else one-peer-exponential. "flock": the flock's own schedule, set or not.
  std::string topology{};
  std::uint64_t seed = 0;  // of random topologies
  /// The program's own schedule, instead of a topology.
  SchedulePtr schedule = nullptr;

  /// Parameters are sent in buckets of at least this many megabytes, in the order in which backward produces
  /// their gradients. Empty: 4 in host memory; 100 on a device, where few large buckets are faster.
  std::optional<double> bucket_mb{};
  /// Wire format of averaged parameters: float32, float16, bfloat16 or int8. Parameters and optimizer state
  /// stay in float32.
  std::string message = "float32";

  /// The number of backward() calls per step(), of which only the last one communicates. 0: any number;
  /// methods that average gradients then do so in each.
  int accumulation = 1;
  /// Gradients with a larger global 2-norm are scaled down to it; 0: no clipping.
  double clip_norm = 0;
  /// Updates each bucket inside backward, as soon as its gradients are complete, and sends it. Excludes
  /// clipping and loss scaling.
  bool eager = false;
  /// The initial factor of scale(); 0: no loss scaling. A step whose gradients overflow is skipped and halves
  /// it, 2000 good steps in a row double it.
  double loss_scale = 0;
  /// If a gradient of this rank is infinite or NaN: "raise" NonFinite before it is sent, "skip" this rank's
  /// update (gradients are then sent in step(), not during backward), or "ignore" it. Overflows of loss_scale
  /// are always skipped.
  std::string on_nonfinite = "raise";

  /// Buffers (batch-norm statistics) are local during training. In global_average() they are averaged
  /// ("average"), taken from rank 0 ("broadcast") or left as they are ("local").
  std::string buffers = "average";

  /// "raise": a rank that needs a dead rank throws PeerLost; "reweight": the survivors continue without it.
  std::string on_peer_failure = "raise";
  /// All ranks start with rank 0's parameters and buffers.
  bool broadcast_at_start = true;
  /// Allows optimizer settings (learning rates, momentum, ...) and a clip_norm that differ between ranks.
  /// Otherwise they are compared when the trainer is made and again while they change in training.
  bool per_rank_settings = false;
  /// Parameters of float16 or bfloat16 are trained and averaged in float32, with the optimizer's state, and
  /// show the rounded values. For SGD, Adam and AdamW.
  bool master_weights = false;
  /// Exchanges models on a device through host memory. This is also the case if the flock cannot exchange
  /// device memory.
  bool through_host = false;
  /// Called at the end of every backward pass that has computed gradients.
  std::function<void()> after_backward = nullptr;
  /// Distinguishes trainers of one flock that exist at the same time.
  std::string name = "trainer";
  /// In errors, the call that made the trainer, and the beginning of its other calls.
  std::string maker = "Trainer()", caller = "Trainer::";
};

/// Throws InvalidArgument for options out of range, unknown words and options that exclude each other.
void check_options(const TrainerOptions& options);
OnPeerFailure failure_policy(const TrainerOptions& options);

}  // namespace starling::train

namespace starling {
using train::TrainerOptions;
}  // namespace starling

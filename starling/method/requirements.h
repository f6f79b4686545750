#pragma once

#include <string>
#include <vector>

#include "starling/method/channel.h"

namespace starling::method {

/// The schedules that a method can follow. All but `none` are schedules whose rows sum to one, unless
/// MethodRequirements says otherwise.
enum class ScheduleKind {
  none,              // its steps use no schedule
  any,               // any schedule
  static_symmetric,  // the same symmetric weights in every step
  static_neighbors,  // the same neighbors in every step, known individually (no means within groups)
  known_neighbors,   // neighbors that are known in advance, not drawn at random
  single_neighbors,  // individual neighbors (no means within groups)
  both_directions,   // known neighbors, and every edge in both directions
  pairs,             // at most one partner per rank and step
  ring,              // the ring
  tree,              // a tree, along which it relays
};

/// The property of a schedule of this kind, such as "static symmetric weights", for lists and documentation.
std::string describe(ScheduleKind kind);
/// Topologies of this kind, such as "ring, torus or complete", for error messages.
std::string examples_of(ScheduleKind kind);

/// What happens to a block's gradient before adapt().
enum class GradientUse {
  own,       // it stays with its rank
  sent,      // gradient() sends it, so it cannot be taken back
  averaged,  // sent; after gradient_done() it is the mean gradient on every rank, and may still be changed
};

/// All requirements of a method as data, for errors, `starling methods` and the documentation. An empty
/// reason means that there is no such restriction.
struct MethodRequirements {
  ScheduleKind schedule = ScheduleKind::any;
  bool column_sums = false;  // the columns must sum to one, so that the sum over the ranks is preserved
  bool push_sum_schedules = false;   // it also follows schedules whose columns alone sum to one
  bool two_block_schedules = false;  // it can also follow schedules that mix two blocks per rank

  std::string optimizer = {};  // "sgd" (without momentum), "adam" (Adam or AdamW), or "" for any
  std::string optimizer_because = "its moments take their settings from it";

  std::string exact_messages_because = {};  // why messages must have the precision of the parameters
  std::string no_int8_because = {};         // why it does not accept int8, whose messages cannot be summed
  std::string no_losses_because = {};       // why it needs every message of its neighbors

  GradientUse gradient = GradientUse::own;
  RelayRule relay = {};       // how it relays, if it does
  bool one_sided = false;     // it communicates through windows
  bool asynchronous = false;  // it never waits for slower ranks, so that ranks may be in different steps
};

/// The topologies that the method can follow, as text: "weights whose columns sum to one".
std::string topology_text(const MethodRequirements& needs);
/// The optimizer that the method needs, as text: "SGD without momentum"; empty if any will do.
std::string optimizer_text(const MethodRequirements& needs);
/// All requirements as short phrases, such as "static symmetric weights" and "exact messages".
std::vector<std::string> describe(const MethodRequirements& needs);

/// Throws InvalidArgument with suitable topologies if the schedule is not of the required kind. `spec` is the
/// method's.
void check_schedule(const MethodRequirements& needs, const std::string& spec, const Schedule& schedule);

}  // namespace starling::method

namespace starling {
using method::MethodRequirements;
using method::ScheduleKind;
}  // namespace starling

#pragma once

#include <string>
#include <vector>

#include "starling/method/channel.h"

namespace starling::method {

/// Which schedules a method can follow. Everything but `none` means schedules whose rows sum to one, unless
/// MethodRequirements says more.
enum class ScheduleKind {
  none,              // its steps use no schedule
  any,               // no further demand
  static_symmetric,  // the same symmetric weights in every step
  static_neighbors,  // the same neighbors in every step, known one by one (no means within groups)
  known_neighbors,   // neighbors that are known beforehand, not drawn at random
  single_neighbors,  // neighbors one by one (no means within groups)
  both_directions,   // known neighbors, and every edge in both directions
  pairs,             // at most one partner per rank and step
  ring,              // the ring
  tree,              // a tree, along which it relays
};

/// "static symmetric weights": what a schedule of this kind has, for lists and documentation.
std::string describe(ScheduleKind kind);
/// "ring, torus or complete": topologies of this kind, for refusals.
std::string examples_of(ScheduleKind kind);

/// What becomes of a block's gradient before adapt().
enum class GradientUse {
  own,       // it stays with its rank
  sent,      // gradient() tells others, so that it cannot be taken back
  averaged,  // sent; after gradient_done() it is the mean gradient on every rank, and may still be changed
};

/// Everything that a method requires of its surroundings, as data: errors, `starling methods` and the
/// documentation read it. A reason that is empty means that there is no such restriction.
struct MethodRequirements {
  ScheduleKind schedule = ScheduleKind::any;
  bool column_sums = false;          // the columns must sum to one, so that the sum over the ranks stays
  bool push_sum_schedules = false;   // it also follows schedules of which only the columns sum to one
  bool two_block_schedules = false;  // it also follows schedules that mix two blocks per rank

  std::string optimizer = {};  // "sgd" (without momentum), "adam" (Adam or AdamW), or any when empty
  std::string optimizer_because = "its moments take their settings from it";

  std::string exact_messages_because = {};  // why messages have the bits of the parameters
  std::string no_int8_because = {};         // why int8, which has no sums of its own, is not taken
  std::string no_losses_because = {};       // why it cannot do without a neighbor's lost message

  std::string host_memory_because = {};  // why its blocks must be in host memory

  GradientUse gradient = GradientUse::own;
  RelayRule relay = {};       // how it relays, if it does
  bool one_sided = false;     // it talks through memory that others write to (windows)
  bool asynchronous = false;  // it never waits for slower ranks, so that ranks may be in different steps
};

/// "weights whose columns sum to one": the topologies that it can follow, in words.
std::string topology_text(const MethodRequirements& needs);
/// "SGD without momentum": the optimizer that it needs, in words; empty where any will do.
std::string optimizer_text(const MethodRequirements& needs);
/// All of it in short phrases, such as "static symmetric weights" and "exact messages".
std::vector<std::string> describe(const MethodRequirements& needs);

/// Throws InvalidArgument, naming topologies that work, where the schedule is not of the kind. `spec` is the
/// method's.
void check_schedule(const MethodRequirements& needs, const std::string& spec, const Schedule& schedule);

}  // namespace starling::method

namespace starling {
using method::MethodRequirements;
using method::ScheduleKind;
}  // namespace starling
